//! Requests that wait or are on a node, and the batches that they were sent in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use router_core::{BatchId, LaneClass, LaneId, RequestId};

use super::NodeNumber;
use super::paces::Paces;

/// A lane of a node.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub node: NodeNumber,
    pub device_type: LaneClass,
    /// When what it was sent is expected to have ended, as the picker gets to know it.
    pub ends: Duration,
    /// Batches that are not answered, in the order in which they were sent.
    batches: Vec<BatchId>,
    /// When the last batch was known to have ended.
    ended: Duration,
}

impl Lane {
    pub(super) fn new(node: NodeNumber, device_type: LaneClass) -> Self {
        Self { node, device_type, ends: Duration::ZERO, batches: Vec::new(), ended: Duration::ZERO }
    }
}

/// A batch that was sent to a node.
#[derive(Clone, Debug)]
struct Batch {
    lane: LaneId,
    /// Requests that are not answered.
    left: usize,
    model: u32,
    /// Time that it is expected to take, before and after what was learned about its node.
    expected: Duration,
    time: Duration,
    sent: Duration,
    ends: Duration,
    /// Whether the router was told that it is done.
    is_released: bool,
    requests: Vec<RequestId>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    model: u32,
    /// Whether another picker asked for it.
    is_asked: bool,
    /// The caller's key, while the request waits or is not answered.
    key: Option<u64>,
    batch: Option<BatchId>,
}

/// What the end of a request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The request was unknown, or others of its batch are not answered.
    Nothing,
    /// It had not been sent.
    Waiting,
    /// It was the last one of its batch. The router is told unless it was.
    Batch { lane: LaneId, batch: BatchId, is_released: bool },
}

/// All requests and batches of a picker.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    pub lanes: BTreeMap<LaneId, Lane>,
    batches: BTreeMap<BatchId, Batch>,
    /// When lanes count as free again. Entries of batches that have ended or were moved are stale.
    releases: BinaryHeap<Reverse<(Duration, BatchId)>>,
    paces: Paces,
}

impl Flight {
    /// A place for a request, of the other picker's if `is_asked`. `None` if there are `most` requests.
    pub(super) fn insert(
        &mut self,
        key: u64,
        (model, is_asked): (u32, bool),
        most: u32,
    ) -> Option<RequestId> {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = u32::try_from(self.slots.len()).ok().filter(|number| *number < most)?;
                self.slots.push(Slot { generation: 0, model, is_asked, key: None, batch: None });
                number
            }
        };
        let slot = self.slots.get_mut(number as usize)?;
        let generation = slot.generation.wrapping_add(1);
        *slot = Slot { generation, model, is_asked, key: Some(key), batch: None };
        Some(RequestId::new(number, slot.generation))
    }

    fn slot_mut(&mut self, request: RequestId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(request.slot() as usize)?;
        (slot.generation == request.generation()).then_some(slot)
    }

    /// Forgets a request that waits, and returns its key, its model, and whether another picker asked for it. `None` if it was sent.
    pub(super) fn refuse(&mut self, request: RequestId) -> Option<(u64, u32, bool)> {
        let slot = self.slot_mut(request).filter(|slot| slot.batch.is_none())?;
        // Without a key it ended before, and its place is free already.
        let refused = (slot.key.take()?, slot.model, slot.is_asked);
        self.free.push(request.slot());
        Some(refused)
    }

    /// Sends a batch to a lane. `travel`: see the settings. Returns the node and the keys of the requests.
    pub(super) fn send(
        &mut self,
        now: Duration,
        (lane, batch): (LaneId, BatchId),
        (model, requests): (u32, &[RequestId]),
        (expected, travel): (Duration, Duration),
    ) -> Option<(NodeNumber, Vec<u64>)> {
        let entry = self.lanes.get_mut(&lane)?;
        let time = expected.mul_f64(self.paces.of(entry.node, model));
        let ends = if entry.batches.is_empty() { now.saturating_add(travel) } else { entry.ends.max(now) };
        let ends = ends.saturating_add(time);
        entry.ends = ends;
        entry.batches.push(batch);
        let node = entry.node;
        if entry.batches.len() == 1 {
            self.releases.push(Reverse((ends.saturating_sub(travel), batch)));
        }
        let left = requests.len();
        let requests = requests.to_vec();
        let mut keys = Vec::with_capacity(left);
        for request in &requests {
            if let Some(slot) = self.slot_mut(*request) {
                slot.batch = Some(batch);
                keys.extend(slot.key);
            }
        }
        let sent = now;
        let batch_sent =
            Batch { lane, left, model, expected, time, sent, ends, is_released: false, requests };
        self.batches.insert(batch, batch_sent);
        Some((node, keys))
    }

    /// A request ended: it was answered, or the client left.
    pub(super) fn ended(&mut self, now: Duration, request: RequestId, travel: Duration) -> Ended {
        let Some(slot) = self.slot_mut(request) else { return Ended::Nothing };
        if slot.key.take().is_none() {
            return Ended::Nothing;
        }
        let Some(id) = slot.batch else {
            self.free.push(request.slot());
            return Ended::Waiting;
        };
        let Some(batch) = self.batches.get_mut(&id) else {
            invariant::violated!("pick.request_of_unknown_batch");
            return Ended::Nothing;
        };
        batch.left = batch.left.saturating_sub(1);
        if batch.left > 0 {
            return Ended::Nothing;
        }
        let (lane, is_released) = (batch.lane, batch.is_released);
        let (model, expected, sent) = (batch.model, batch.expected, batch.sent);
        // The number of a lane may belong to another node by now.
        if let Some(entry) = self.lanes.get_mut(&lane).filter(|entry| entry.batches.contains(&id)) {
            let began = entry.ended.max(sent.saturating_add(travel));
            self.paces.learn((entry.node, model), now.saturating_sub(began), expected);
            entry.ended = now;
            entry.batches.retain(|known| *known != id);
            entry.ends = entry.ends.min(now);
            // The next one begins now.
            if let Some(next) = entry.batches.first().copied()
                && let Some(batch) = self.batches.get_mut(&next)
            {
                batch.ends = now.saturating_add(batch.time);
                entry.ends = batch.ends;
                self.releases.push(Reverse((batch.ends.saturating_sub(travel), next)));
            }
        }
        Ended::Batch { lane, batch: id, is_released }
    }

    /// Forgets a batch whose last request ended, after the router was told.
    pub(super) fn forget(&mut self, batch: BatchId) {
        if let Some(batch) = self.batches.remove(&batch) {
            self.free.extend(batch.requests.iter().map(|request| request.slot()));
        }
    }

    /// Forgets a lane whose node is lost. Its batches end when their requests do.
    pub(super) fn remove_lane(&mut self, lane: LaneId) {
        let batches = self.lanes.remove(&lane).map(|lane| lane.batches).unwrap_or_default();
        for batch in batches {
            if let Some(batch) = self.batches.get_mut(&batch) {
                batch.is_released = true;
            }
        }
    }

    /// The next batch whose lane counts as free again by now.
    pub(super) fn release(&mut self, now: Duration, travel: Duration) -> Option<(LaneId, BatchId)> {
        while let Some(&Reverse((at, id))) = self.releases.peek() {
            if at > now {
                return None;
            }
            self.releases.pop();
            let Some(batch) = self.batches.get_mut(&id) else { continue };
            // No lane holds more than the batch that runs and the next one.
            let is_first = self.lanes.get(&batch.lane).is_some_and(|lane| lane.batches.first() == Some(&id));
            if is_first && !batch.is_released && batch.ends.saturating_sub(travel) <= now {
                batch.is_released = true;
                return Some((batch.lane, id));
            }
        }
        None
    }

    /// When the next lane may count as free again.
    pub(super) fn next_release(&self) -> Option<Duration> {
        self.releases.peek().map(|Reverse((at, _))| *at)
    }

    /// Requests that wait or are not answered.
    pub(super) fn unfinished(&self) -> usize {
        self.slots.iter().filter(|slot| slot.key.is_some()).count()
    }
}
