//! One queue: the waiting requests of one model, class, tenant and shape, by deadline and by arrival.

use invariant::expected;

use crate::ordered::{Keyed, Ordered};
use crate::request::{NIL, Requests, Timing};
use crate::timers::Timers;
use crate::{Class, ModelId, Nanos, ShapeKey, Tenant};

/// Order of queues for a free lane: class, priority within the class, rank from the policy, admission order of the first
/// request.
pub(crate) type Urgency = (Class, Priority, u64, u64);

/// Order within a class. Requests that have waited too long go first, then those with a deadline, then those without.
/// Within both, tenants over their share go last. Requests that lost their deadline go after all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// It has waited longer than `starvation` or `best_effort_max_wait`.
    #[default]
    Overdue,
    Deadline,
    DeadlineOverShare,
    BestEffort,
    BestEffortOverShare,
    Delayed,
    /// Beyond the quota of a tenant that borrows. Such requests go after those of all classes.
    OverQuota,
}

/// A waiting request as policies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Latest time of its answer; [`Nanos::NEVER`] if it has no deadline.
    pub deadline: Nanos,
    /// Time of its arrival.
    pub arrived: Nanos,
    /// Its rows.
    pub rows: u32,
    pub(crate) slot: u32,
    pub(crate) sequence: u64,
}

impl Keyed for Waiting {
    type Key = (Nanos, u64);
    fn key(&self) -> Self::Key {
        (self.deadline, self.sequence)
    }
}

/// Properties that all requests of a queue share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueKey {
    pub model: ModelId,
    pub class: Class,
    pub tenant: Tenant,
    pub shape: ShapeKey,
    /// Whether they have deadlines, never had one, or lost it.
    pub timing: Timing,
    /// Whether they are beyond the quota of their tenant, which borrows.
    pub borrowed: bool,
    /// Pool of the lanes that may run them: the model's, or one that its policy chose.
    pub pool: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub key: QueueKey,
    pub rows: u32,
    pub bytes: u64,
    /// Its urgency if its policy would fire.
    pub ready: Option<Urgency>,
    /// Whether it is in `Pool::deferred`.
    pub deferred: bool,
    pub waiting: Ordered<Waiting>,
    oldest: u32,
    newest: u32,
}

impl Queue {
    pub(crate) fn new(key: QueueKey) -> Self {
        Self {
            key,
            rows: 0,
            bytes: 0,
            ready: None,
            deferred: false,
            waiting: Ordered::default(),
            oldest: NIL,
            newest: NIL,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The request with the earliest deadline.
    pub(crate) fn head(&self) -> Option<&Waiting> {
        self.waiting.first()
    }

    /// Slot of the request that has waited longest.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiting.iter().map(|waiting| waiting.slot)
    }

    fn push(&mut self, slot: u32, requests: &mut Requests) {
        let newest = self.newest;
        let Some(request) = expected!(requests.at_mut(slot), "router.queued_request_unknown") else { return };
        request.previous = newest;
        request.next = NIL;
        let (deadline, sequence, arrived) = (request.wanted_by, request.sequence, request.arrived);
        let (rows, bytes) = (request.rows, request.bytes);
        match requests.at_mut(newest) {
            Some(before) => before.next = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.rows = self.rows.saturating_add(rows);
        self.bytes = self.bytes.saturating_add(bytes);
        self.waiting.insert(Waiting { deadline, arrived, rows, slot, sequence });
    }

    fn remove(&mut self, slot: u32, requests: &mut Requests) {
        let Some(request) = expected!(requests.at(slot), "router.queued_request_unknown") else { return };
        let (previous, next, rows, bytes) = (request.previous, request.next, request.rows, request.bytes);
        let waiting = self.waiting.remove((request.wanted_by, request.sequence));
        if expected!(waiting, "router.request_missing_from_queue").is_none() {
            return;
        }
        match requests.at_mut(previous) {
            Some(before) => before.next = next,
            None => self.oldest = next,
        }
        match requests.at_mut(next) {
            Some(after) => after.previous = previous,
            None => self.newest = previous,
        }
        self.rows = self.rows.saturating_sub(rows);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Takes over the requests of another queue; its own slot is `own`.
    pub(crate) fn absorb(&mut self, other: Self, own: u32, requests: &mut Requests) {
        for waiting in other.waiting.iter() {
            if let Some(request) = requests.at_mut(waiting.slot) {
                request.queue = own;
            }
        }
        self.rows = self.rows.saturating_add(other.rows);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.waiting.absorb(other.waiting);
        let sequence = |requests: &Requests, slot| requests.at(slot).map(|request| request.sequence);
        let (mut left, mut right) = (self.oldest, other.oldest);
        (self.oldest, self.newest) = (NIL, NIL);
        while let Some(from) = match (sequence(requests, left), sequence(requests, right)) {
            (None, None) => None,
            (Some(_), None) => Some(&mut left),
            (None, Some(_)) => Some(&mut right),
            (Some(l), Some(r)) => Some(if l < r { &mut left } else { &mut right }),
        } {
            let slot = *from;
            if let Some(request) = requests.at_mut(slot) {
                *from = request.next;
                (request.previous, request.next) = (self.newest, NIL);
            }
            match requests.at_mut(self.newest) {
                Some(before) => before.next = slot,
                None => self.oldest = slot,
            }
            self.newest = slot;
        }
    }

    pub(crate) fn row_bytes(&self) -> u64 {
        self.bytes / u64::from(self.rows.max(1))
    }
}

/// Queues by slot, and when they must be evaluated. Slots of emptied queues are reused with their memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queues {
    slots: Vec<Queue>,
    free: Vec<u32>,
    /// Queues that changed during this event.
    changed: Vec<u32>,
    /// When each waiting queue must be evaluated again.
    timers: Timers,
    /// Payload bytes of all queued requests.
    bytes: u64,
}

impl Queues {
    pub(crate) fn get(&self, slot: u32) -> Option<&Queue> {
        self.slots.get(slot as usize)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Queue> {
        self.slots.get_mut(slot as usize)
    }

    pub(crate) fn open(&mut self, key: QueueKey) -> u32 {
        if let Some(slot) = self.free.pop() {
            if let Some(queue) = self.get_mut(slot) {
                queue.key = key;
            }
            return slot;
        }
        self.slots.push(Queue::new(key));
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    /// Puts a request into a queue.
    pub(crate) fn push(&mut self, queue: u32, request: u32, requests: &mut Requests) {
        self.move_request(queue, request, requests, Queue::push);
    }

    /// Takes a request out of its queue.
    pub(crate) fn take(&mut self, queue: u32, request: u32, requests: &mut Requests) {
        self.move_request(queue, request, requests, Queue::remove);
    }

    fn move_request(
        &mut self,
        queue: u32,
        request: u32,
        requests: &mut Requests,
        change: fn(&mut Queue, u32, &mut Requests),
    ) {
        let queue = expected!(self.slots.get_mut(queue as usize), "router.request_in_unknown_queue");
        let Some(queue) = queue else { return };
        let before = queue.bytes;
        change(queue, request, requests);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(queue.bytes);
    }

    /// Payload bytes of all queued requests.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks a queue for evaluation before this event ends.
    pub(crate) fn note(&mut self, queue: u32) {
        if self.changed.last() != Some(&queue) {
            self.changed.push(queue);
        }
    }

    pub(crate) fn note_all(&mut self, queues: impl IntoIterator<Item = u32>) {
        self.changed.extend(queues);
    }

    /// Marks the queues of a pool.
    pub(crate) fn note_pool(&mut self, pool: u32) {
        let queues = (0..).zip(&self.slots).filter(|(_, queue)| !queue.is_empty() && queue.key.pool == pool);
        self.changed.extend(queues.map(|(slot, _)| slot));
    }

    pub(crate) fn is_noted(&self, queue: u32) -> bool {
        self.changed.contains(&queue)
    }

    /// Unmarks the queue that was marked last, and returns it.
    pub(crate) fn pop_noted(&mut self) -> Option<u32> {
        self.changed.pop()
    }

    /// Sets when a queue must be evaluated again; `NEVER` for no time.
    pub(crate) fn set_timer(&mut self, queue: u32, at: Nanos) {
        self.timers.set(queue, at);
    }

    /// Sets when a queue must be evaluated again, if it is not to be evaluated earlier.
    pub(crate) fn bring_timer_forward(&mut self, queue: u32, at: Nanos) {
        self.timers.bring_forward(queue, at);
    }

    /// When the first queue must be evaluated.
    pub(crate) fn next_timer(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// Number of queues with a timer.
    pub(crate) fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Marks the queues that must be evaluated now.
    pub(crate) fn note_due(&mut self, now: Nanos) {
        while let Some(queue) = self.timers.pop_due(now) {
            self.note(queue);
        }
    }

    #[cfg(test)]
    pub(crate) fn miscount_bytes(&mut self) {
        self.bytes += 1;
    }

    /// Makes the slot of an empty queue available.
    pub(crate) fn close(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Open queues and those whose memory is kept.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Queue)> {
        (0..).zip(self.slots.iter()).filter(|(_, queue)| !queue.is_empty())
    }
}
