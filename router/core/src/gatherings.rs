//! Requests that wait for the others of their batch, because a sender that forms batches marked them.
//!
//! [`Gatherings`] stands before the router. It holds marked requests until all rows of their batch have come, and at most for
//! the longest wait. Its caller then hands them to the router in one event. The machine takes the time and what happened; it has no
//! clock and no I/O.
//!
//! | id | statement |
//! |---|---|
//! | G1 | every request that is held is released or cancelled, once |
//! | G2 | no request is held longer than the longest wait after the first of its batch, or than its deadline |
//! | G3 | no more batches are open than the limit |

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{Arrival, ModelId, Nanos, RequestId};
use invariant::expected;

/// The mark of a request that its sender put into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The batch. Marks with equal numbers and the same model belong together.
    pub batch: u64,
    /// Rows of all requests of the batch, at least 1.
    pub rows: u32,
}

/// How marked requests went on to the queues since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherCounts {
    /// Batches of which all rows came, except those of clients that left.
    pub complete: u64,
    /// Batches that went on without some of their rows.
    pub incomplete: u64,
    /// Requests that did not wait, because too many batches were open.
    pub too_many: u64,
}

/// A model and a batch of it.
type Key = (ModelId, u64);

#[derive(Debug)]
struct Gathering {
    /// When it ends at the latest.
    due: Nanos,
    /// Rows that have not come.
    missing: u32,
    held: Vec<Arrival>,
}

/// All batches of which rows are missing.
#[derive(Debug)]
pub struct Gatherings {
    wait_max: Nanos,
    open_max: usize,
    open: BTreeMap<Key, Gathering>,
    /// The open batches by their end.
    ends: BTreeSet<(Nanos, Key)>,
    /// The batch of each request that is held.
    requests: BTreeMap<RequestId, Key>,
    /// Requests to hand to the core, by batch.
    released: VecDeque<Vec<Arrival>>,
    is_closed: bool,
    counts: GatherCounts,
}

impl Gatherings {
    /// Holds requests for at most `wait_max`, of at most `open_max` batches.
    pub fn new(wait_max: Nanos, open_max: usize) -> Self {
        Self {
            wait_max,
            open_max,
            open: BTreeMap::new(),
            ends: BTreeSet::new(),
            requests: BTreeMap::new(),
            released: VecDeque::new(),
            is_closed: false,
            counts: GatherCounts::default(),
        }
    }

    /// Takes a request. It is released with the last one of its batch, or by itself if it need not or cannot wait.
    pub fn arrive(&mut self, now: Nanos, gather: Gather, arrival: Arrival) {
        let key = (arrival.model, gather.batch);
        if !self.open.contains_key(&key) {
            let is_whole = arrival.rows >= gather.rows;
            if is_whole || self.is_closed || self.open.len() >= self.open_max {
                if is_whole {
                    self.counts.complete += 1;
                } else if !self.is_closed {
                    self.counts.too_many += 1;
                }
                return self.released.push_back(vec![arrival]);
            }
            let due = now.after(self.wait_max);
            self.ends.insert((due, key));
            self.open.insert(key, Gathering { due, missing: gather.rows, held: Vec::new() });
        }
        let Some(gathering) = expected!(self.open.get_mut(&key), "gatherings.batch_unknown") else { return };
        gathering.held.push(arrival);
        self.requests.insert(arrival.request, key);
        // A request of no rows is refused by the core. It counts as one here, so that a batch holds no more requests than rows.
        gathering.missing = gathering.missing.saturating_sub(arrival.rows.max(1));
        let due = arrival.deadline.map_or(gathering.due, |deadline| deadline.min(gathering.due));
        if due < gathering.due {
            self.ends.remove(&(gathering.due, key));
            gathering.due = due;
            self.ends.insert((due, key));
        }
        if gathering.missing == 0 {
            self.release(key);
        }
    }

    /// The client of a request left. False if the request is not held, so that the core must be told. Otherwise the caller ends
    /// it, and its batch does not wait for its rows.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        let Some(key) = self.requests.remove(&request) else { return false };
        if let Some(gathering) = expected!(self.open.get_mut(&key), "gatherings.batch_unknown") {
            gathering.held.retain(|arrival| arrival.request != request);
        }
        true
    }

    /// A marked request will not come, because its client left before it was taken. An open batch does not wait for its rows.
    pub fn absent(&mut self, model: ModelId, gather: Gather, rows: u32) {
        let key = (model, gather.batch);
        let Some(gathering) = self.open.get_mut(&key) else { return };
        gathering.missing = gathering.missing.saturating_sub(rows.max(1));
        if gathering.missing == 0 {
            self.release(key);
        }
    }

    /// Releases the batches that have waited for as long as they may.
    pub fn tick(&mut self, now: Nanos) {
        while let Some(&(_, key)) = self.ends.first().filter(|(due, _)| *due <= now) {
            self.release(key);
        }
    }

    /// Releases all requests of a model.
    pub fn release_model(&mut self, model: ModelId) {
        let of_model = (model, 0)..=(model, u64::MAX);
        while let Some((&key, _)) = self.open.range(of_model.clone()).next() {
            self.release(key);
        }
    }

    /// Releases all requests, and holds no more.
    pub fn close(&mut self) {
        self.is_closed = true;
        while let Some((&key, _)) = self.open.first_key_value() {
            self.release(key);
        }
    }

    /// Time by which [`Gatherings::tick`] must be called.
    pub fn next_wake(&self) -> Option<Nanos> {
        self.ends.first().map(|(due, _)| *due)
    }

    /// The next requests to hand to the core, together.
    pub fn next_released(&mut self) -> Option<Vec<Arrival>> {
        self.released.pop_front()
    }

    /// What happened since the start.
    pub fn counts(&self) -> GatherCounts {
        self.counts
    }

    fn release(&mut self, key: Key) {
        let released = expected!(self.open.remove(&key), "gatherings.released_twice");
        let Some(Gathering { due, missing, held }) = released else { return };
        self.ends.remove(&(due, key));
        for arrival in &held {
            self.requests.remove(&arrival.request);
        }
        if held.is_empty() {
            return;
        }
        if missing == 0 {
            self.counts.complete += 1;
        } else {
            self.counts.incomplete += 1;
        }
        self.released.push_back(held);
    }
}
