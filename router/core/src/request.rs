//! Unfinished requests.

use crate::forecast::Forecast;
use crate::{BatchId, Class, FamilyId, ModelId, Nanos, Position, RequestId, ShapeKey, Tenant, TimeoutAction};

/// How the time of their answer matters to the requests of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timing {
    Deadline,
    BestEffort,
    /// They could not meet their deadlines (`TimeoutAction::Delay`).
    Delayed,
}

/// End of a linked list of requests.
pub(crate) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Queued,
    /// In this batch slot.
    InFlight {
        batch: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub id: RequestId,
    pub model: ModelId,
    pub class: Class,
    pub tenant: Tenant,
    pub shape: ShapeKey,
    pub rows: u32,
    pub bytes: u64,
    pub arrived: Nanos,
    pub deadline: Nanos,
    /// How long it may take, or its whole pipeline if that has one deadline. `NEVER` without a deadline.
    pub objective: Nanos,
    pub timeout_action: TimeoutAction,
    /// Where in its pipeline it is.
    pub position: Option<Position>,
    /// The family of which it got a variant.
    pub family: Option<FamilyId>,
    /// It could not meet its deadline and lost it.
    pub delayed: bool,
    /// The deadline that policies see: the deadline minus the margin.
    pub wanted_by: Nanos,
    /// Order of admission, the tie-breaker between equal deadlines.
    pub sequence: u64,
    /// Runs alone, because its batch failed once.
    pub alone: bool,
    /// A lane that ran it failed.
    pub lost: bool,
    /// Runs although the estimate says that it will be late, to check the estimate.
    pub probe: bool,
    /// What was expected when it came.
    pub forecast: Forecast,
    /// Enough requests waited before it on arrival to determine its wait.
    pub queued_behind: bool,
    /// It is beyond the quota of its tenant, which borrows.
    pub borrowed: bool,
    /// Lane time that its tenant's quota counts for it: reserved while it waits, charged while it runs.
    pub counted_time: Nanos,
    pub stage: Stage,
    /// The batch that runs it or ran it last.
    pub batch: Option<BatchId>,
    /// How often it was preempted.
    pub returned: u8,
    /// It starts no batch before, because it was preempted often. Best effort only.
    pub pauses_until: Nanos,
    /// Queue slot while queued.
    pub queue: u32,
    /// Links in order of arrival while queued.
    pub previous: u32,
    pub next: u32,
}

impl Request {
    pub(crate) fn timing(&self) -> Timing {
        match (self.delayed, self.deadline) {
            (true, _) => Timing::Delayed,
            (false, Nanos::NEVER) => Timing::BestEffort,
            (false, _) => Timing::Deadline,
        }
    }
}

/// Requests by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    slots: Vec<Option<Request>>,
    live: usize,
    sequence: u64,
}

impl Requests {
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// A number that is larger than all before it, for the order of requests.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Adds a request; false if its slot is taken.
    pub(crate) fn insert(&mut self, request: Request) -> bool {
        let slot = request.id.slot() as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        match self.slots.get_mut(slot) {
            Some(free @ None) => {
                *free = Some(request);
                self.live += 1;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn taken(&self, id: RequestId) -> bool {
        self.at(id.slot()).is_some()
    }

    pub(crate) fn get(&self, id: RequestId) -> Option<&Request> {
        self.at(id.slot()).filter(|request| request.id == id)
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&Request> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Request> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut)
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Request> {
        let removed = self.slots.get_mut(slot as usize).and_then(Option::take);
        self.live -= usize::from(removed.is_some());
        removed
    }

    /// Unfinished requests and vacant slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.slots.iter().flatten()
    }
}
