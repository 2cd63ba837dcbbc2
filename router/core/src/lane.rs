//! Lanes and the batches they hold.

use smallvec::SmallVec;

use crate::cycle::Round;
use crate::{BatchId, LaneClass, LaneId, LaneSpec, ModelId, Nanos, RequestId};

/// Whether a lane is given batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneMode {
    /// It is in its pools and gets batches.
    Active,
    /// It is in no pool and still holds a batch.
    Draining,
    /// It is in no pool and holds nothing. `Effect::LaneIdle` was returned.
    Idle,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub lane_class: LaneClass,
    /// How long before its expected end of work it may get the next batch: the least that a policy of its models asks
    /// for. Zero on lanes with a cycle or a quota.
    pub ahead: Nanos,
    /// Batch slots, oldest first.
    pub holding: SmallVec<[u32; 4]>,
    /// Time of its last report, at which a batch behind that one started.
    pub last_report: Nanos,
    /// Pools that contain it.
    pub pools: SmallVec<[u32; 2]>,
    /// The pool of this lane alone, if requests were bound to it.
    pub own_pool: Option<u32>,
    /// When its pools expect it to be free; `None` if they count it as free.
    pub end: Option<Nanos>,
    /// Whether all it holds is a best-effort batch that can be preempted. Its pools count it as free.
    pub yields: bool,
    pub mode: LaneMode,
    /// Idle lanes that it overlaps. It gets no batch while one of them holds one.
    pub after: SmallVec<[LaneId; 2]>,
    /// The cycle and the current slot, if its models run in time slices.
    pub round: Option<Box<Round>>,
    /// Whether it has a time quota.
    pub has_quota: bool,
    /// The last batch started before its mode or its lease last changed.
    pub fence: Generation,
}

impl Lane {
    pub(crate) fn new(spec: &LaneSpec) -> Self {
        Self {
            lane_class: spec.lane_class,
            ahead: Nanos::ZERO,
            holding: SmallVec::new(),
            last_report: Nanos::ZERO,
            pools: SmallVec::new(),
            own_pool: None,
            end: None,
            yields: false,
            mode: LaneMode::Active,
            after: SmallVec::new(),
            round: None,
            has_quota: false,
            fence: Generation::default(),
        }
    }

    /// Batches that it may hold: one that runs, and one that waits if its policies plan ahead.
    pub(crate) fn depth(&self) -> usize {
        if self.ahead > Nanos::ZERO { 2 } else { 1 }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.mode == LaneMode::Active
    }
}

/// Counts batches, wrapping around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// Whether the batch was started after this one. Right for up to half of all generations.
    pub(crate) fn is_before(self, batch: BatchId) -> bool {
        let since = ((batch.0 >> 32) as u32).wrapping_sub(self.0);
        since != 0 && since < u32::MAX / 2
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub id: BatchId,
    pub lane: LaneId,
    pub model: ModelId,
    pub rows: u32,
    pub row_bytes: u64,
    pub dispatched: Nanos,
    /// Expected time of its report.
    pub expected_end: Nanos,
    /// The lane was asked to return it.
    pub preempted: bool,
    /// Its requests are of `Class::BEST_EFFORT`.
    pub best_effort: bool,
    /// Most times that one of its requests was preempted before.
    pub returned: u8,
    pub live: bool,
    pub members: Vec<RequestId>,
}

impl Batch {
    /// Whether it is a best-effort batch that its lane was asked to return.
    pub(crate) fn is_given_back(&self) -> bool {
        self.best_effort && self.preempted
    }
}

/// Batches in flight by slot; a slot is reused with its memory. The id carries a generation above the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batches {
    slots: Vec<Batch>,
    free: Vec<u32>,
    generation: u32,
}

impl Batches {
    /// Adds a batch without members.
    pub(crate) fn open(&mut self, lane: LaneId, model: ModelId) -> (u32, Option<&mut Batch>) {
        let slot = self.free.pop().unwrap_or_else(|| u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        self.generation = self.generation.wrapping_add(1);
        let id = BatchId((u64::from(self.generation) << 32) | u64::from(slot));
        let members = self.slots.get_mut(slot as usize).map(|batch| std::mem::take(&mut batch.members));
        let batch = Batch {
            id,
            lane,
            model,
            rows: 0,
            row_bytes: 0,
            dispatched: Nanos::ZERO,
            expected_end: Nanos::ZERO,
            preempted: false,
            best_effort: false,
            returned: 0,
            live: true,
            members: members.unwrap_or_default(),
        };
        match self.slots.get_mut(slot as usize) {
            Some(entry) => *entry = batch,
            None => self.slots.push(batch),
        }
        (slot, self.slots.get_mut(slot as usize))
    }

    /// The generation of the last batch that was started.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&Batch> {
        self.slots.get(slot as usize).filter(|batch| batch.live)
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Batch> {
        self.slots.get_mut(slot as usize).filter(|batch| batch.live)
    }

    pub(crate) fn slot_of(&self, id: BatchId) -> Option<u32> {
        let slot = u32::try_from(id.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        self.at(slot).filter(|batch| batch.id == id).map(|_| slot)
    }

    /// Batches in flight and those whose memory is kept.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn member(&self, slot: u32, position: usize) -> Option<RequestId> {
        self.at(slot)?.members.get(position).copied()
    }

    pub(crate) fn close(&mut self, slot: u32) {
        if let Some(batch) = self.at_mut(slot) {
            batch.live = false;
            batch.members.clear();
            self.free.push(slot);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Batch)> {
        (0..).zip(self.slots.iter()).filter(|(_, batch)| batch.live)
    }
}
