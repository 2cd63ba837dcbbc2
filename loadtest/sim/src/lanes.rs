//! The lanes of a simulation: each runs its batches one after another.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use router_core::BatchId;

use crate::error::Breach;

/// A batch that was sent to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub batch: BatchId,
    pub model: u32,
    /// Whether the model's new version runs it.
    pub canary: bool,
    pub rows: u32,
}

/// A running batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub held: Held,
    /// Virtual time at which the batch started, in nanoseconds.
    pub start: u64,
    pub end: u64,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    up: bool,
    running: Option<Running>,
    /// Run next, in this order.
    waiting: VecDeque<Held>,
    /// Changes whenever a batch is taken off before its end, so that its end is not taken for another's.
    epoch: u32,
}

/// Lanes by number, and the ends of what they run.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    depth: u32,
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl Lanes {
    /// Creates `count` lanes, all down.
    pub(crate) fn new(count: u32, depth: u32) -> Self {
        let lanes = (0..count).map(|_| Lane::default()).collect();
        Self { lanes, depth, ends: BinaryHeap::with_capacity(count as usize) }
    }

    fn lane_mut(&mut self, lane: u32) -> Option<&mut Lane> {
        invariant::expected!(self.lanes.get_mut(lane as usize), "sim.unknown_lane")
    }

    pub(crate) fn come_up(&mut self, lane: u32) {
        if let Some(lane) = self.lane_mut(lane) {
            lane.up = true;
        }
    }

    /// Fails a lane. Returns the running and the waiting batches, which are lost.
    pub(crate) fn go_down(&mut self, lane: u32) -> (Option<Running>, VecDeque<Held>) {
        let Some(lane) = self.lane_mut(lane) else { return (None, VecDeque::new()) };
        lane.up = false;
        lane.epoch = lane.epoch.wrapping_add(1);
        (lane.running.take(), std::mem::take(&mut lane.waiting))
    }

    /// Sends a batch to a lane. On a free lane it starts, takes `time()` nanoseconds, and the result is true.
    pub(crate) fn give(
        &mut self,
        lane: u32,
        held: Held,
        now: u64,
        time: impl FnOnce() -> u64,
    ) -> Result<bool, Breach> {
        let depth = self.depth;
        let entry = self.lane_mut(lane).filter(|lane| lane.up);
        let Some(entry) = entry else {
            return Err(Breach {
                id: "R5",
                detail: format!("{:?} was sent to lane {lane}, which is down", held.batch),
            });
        };
        if entry.running.is_none() {
            self.start(lane, held, now, time());
            return Ok(true);
        }
        Breach::unless(entry.waiting.len() + 1 < depth as usize, "R5", || {
            format!("{:?} was sent to lane {lane}, which holds {depth} already", held.batch)
        })?;
        entry.waiting.push_back(held);
        Ok(false)
    }

    fn start(&mut self, lane: u32, held: Held, now: u64, time: u64) {
        let end = now.saturating_add(time);
        let Some(entry) = self.lane_mut(lane) else { return };
        entry.running = Some(Running { held, start: now, end });
        let epoch = entry.epoch;
        self.ends.push(Reverse((end, lane, epoch)));
    }

    /// The running batch of a lane.
    pub(crate) fn running(&self, lane: u32) -> Option<Held> {
        self.lanes.get(lane as usize)?.running.map(|running| running.held)
    }

    /// Starts the batch that waits for a lane, if there is one; `time` says how long it takes.
    pub(crate) fn start_next(&mut self, lane: u32, now: u64, time: impl FnOnce(Held) -> u64) -> bool {
        let waiting = self.lane_mut(lane).filter(|lane| lane.running.is_none());
        let Some(held) = waiting.and_then(|lane| lane.waiting.pop_front()) else { return false };
        self.start(lane, held, now, time(held));
        true
    }

    /// When the next batch ends; none if all lanes are idle.
    pub(crate) fn next_end(&mut self) -> Option<u64> {
        while let Some(&Reverse((end, lane, epoch))) = self.ends.peek() {
            if self.lanes.get(lane as usize).is_some_and(|lane| lane.epoch == epoch) {
                return Some(end);
            }
            self.ends.pop();
        }
        None
    }

    /// Ends the batch that ends next. Returns its lane, now free, and the batch.
    pub(crate) fn finish_next(&mut self) -> Option<(u32, Running)> {
        self.next_end()?;
        let Reverse((_, lane, _)) = self.ends.pop()?;
        Some((lane, self.lane_mut(lane)?.running.take()?))
    }

    /// Removes a batch from its lane. Returns `None` if it has ended, and its `Running` entry if it was running.
    pub(crate) fn preempt(&mut self, lane: u32, batch: BatchId) -> Option<Option<Running>> {
        let lane = self.lane_mut(lane)?;
        let before = lane.waiting.len();
        lane.waiting.retain(|held| held.batch != batch);
        if lane.waiting.len() < before {
            return Some(None);
        }
        let running = lane.running.take_if(|running| running.held.batch == batch)?;
        lane.epoch = lane.epoch.wrapping_add(1);
        Some(Some(running))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(batch: u64) -> Held {
        Held { batch: BatchId(batch), model: 0, canary: false, rows: 1 }
    }

    #[test]
    fn a_second_batch_waits_for_the_first() {
        let mut lanes = Lanes::new(2, 2);
        lanes.come_up(1);
        assert!(lanes.give(0, held(1), 0, || 5).is_err(), "lane 0 is down");
        assert!(lanes.give(1, held(1), 0, || 5).unwrap());
        assert!(!lanes.give(1, held(2), 1, || 5).unwrap());
        assert!(lanes.give(1, held(3), 1, || 5).is_err(), "no more than two");
        assert_eq!(lanes.next_end(), Some(5));
        assert_eq!(lanes.finish_next().unwrap().1.held, held(1));
        assert!(lanes.start_next(1, 5, |_| 7));
        assert_eq!(lanes.finish_next(), Some((1, Running { held: held(2), start: 5, end: 12 })));
        assert_eq!(lanes.finish_next(), None);
    }

    #[test]
    fn the_end_of_a_batch_that_was_taken_off_is_forgotten() {
        let mut lanes = Lanes::new(1, 1);
        lanes.come_up(0);
        lanes.give(0, held(1), 0, || 5).unwrap();
        assert_eq!(lanes.preempt(0, BatchId(9)), None);
        assert!(lanes.preempt(0, BatchId(1)).unwrap().is_some());
        lanes.give(0, held(2), 1, || 9).unwrap();
        assert_eq!(lanes.next_end(), Some(10));
        assert_eq!(lanes.go_down(0).0.unwrap().held, held(2));
        assert_eq!(lanes.next_end(), None);
    }
}
