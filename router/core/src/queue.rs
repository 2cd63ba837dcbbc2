//! One queue: the waiting requests of one model, class and shape, by deadline and by arrival.

use crate::heap::Heap;
use crate::request::{NIL, Requests};
use crate::{Class, ModelId, Nanos, ShapeKey};

/// Order of queues for a free lane: class first, then the deadline of the first request (or the time until
/// which it is patient), then admission.
pub(crate) type Urgency = (Class, Nanos, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub model: ModelId,
    pub class: Class,
    pub shape: ShapeKey,
    pub rows: u32,
    pub bytes: u64,
    /// Where it stands among the queues that would fire, if it does.
    pub ready: Option<Urgency>,
    by_deadline: Heap<(Nanos, u64)>,
    oldest: u32,
    newest: u32,
}

impl Queue {
    pub(crate) fn new(model: ModelId, class: Class, shape: ShapeKey) -> Self {
        Self {
            model,
            class,
            shape,
            rows: 0,
            bytes: 0,
            ready: None,
            by_deadline: Heap::default(),
            oldest: NIL,
            newest: NIL,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_deadline.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_deadline.is_empty()
    }

    /// Slot of the request with the earliest deadline.
    pub(crate) fn head(&self) -> Option<u32> {
        self.by_deadline.first().map(|(_, slot)| slot)
    }

    /// Slot of the request that waits longest.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// Slot of the request that came last.
    pub(crate) fn newest(&self) -> Option<u32> {
        (self.newest != NIL).then_some(self.newest)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_deadline.iter().map(|(_, slot)| slot)
    }

    pub(crate) fn push(&mut self, slot: u32, requests: &mut Requests) {
        let newest = self.newest;
        let Some(request) = requests.at_mut(slot) else { return };
        request.previous = newest;
        request.next = NIL;
        let (key, rows, bytes) = ((request.deadline, request.sequence), request.rows, request.bytes);
        match requests.at_mut(newest) {
            Some(before) => before.next = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.rows = self.rows.saturating_add(rows);
        self.bytes = self.bytes.saturating_add(bytes);
        self.by_deadline.insert(key, slot, &mut requests.positions);
    }

    pub(crate) fn remove(&mut self, slot: u32, requests: &mut Requests) {
        if !self.by_deadline.remove(slot, &mut requests.positions) {
            return;
        }
        let Some(request) = requests.at(slot) else { return };
        let (previous, next, rows, bytes) = (request.previous, request.next, request.rows, request.bytes);
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

    pub(crate) fn row_bytes(&self) -> u64 {
        self.bytes / u64::from(self.rows.max(1))
    }
}

/// Queues by slot; slots of emptied queues are reused with their memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queues {
    slots: Vec<Queue>,
    free: Vec<u32>,
}

impl Queues {
    pub(crate) fn get(&self, slot: u32) -> Option<&Queue> {
        self.slots.get(slot as usize)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Queue> {
        self.slots.get_mut(slot as usize)
    }

    pub(crate) fn open(&mut self, model: ModelId, class: Class, shape: ShapeKey) -> u32 {
        if let Some(slot) = self.free.pop() {
            if let Some(queue) = self.get_mut(slot) {
                (queue.model, queue.class, queue.shape) = (model, class, shape);
            }
            return slot;
        }
        self.slots.push(Queue::new(model, class, shape));
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    /// Only for an empty queue.
    pub(crate) fn close(&mut self, slot: u32) {
        self.free.push(slot);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Queue)> {
        (0..).zip(self.slots.iter()).filter(|(_, queue)| !queue.is_empty())
    }
}
