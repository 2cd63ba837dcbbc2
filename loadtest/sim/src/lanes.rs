//! The lanes of a simulation: each runs its batches one after another.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use router_core::{BatchId, LaneId, ModelLanes};
use workload::{Model, Workload};

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
    /// When it ends. While it stands still, how long it runs once it goes on.
    pub end: u64,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    up: bool,
    running: Option<Running>,
    /// Whether its batch stands still, or would.
    stands_still: bool,
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
    /// Number of lanes of ordinary priority. Further ones have idle priority, on the devices of these in their order.
    ordinary: u32,
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl Lanes {
    /// Creates `count` lanes, all down, of which the first `ordinary` have ordinary priority.
    pub(crate) fn new((count, ordinary): (u32, u32), depth: u32) -> Self {
        let lanes = (0..count).map(|_| Lane::default()).collect();
        Self { lanes, depth, ordinary, ends: BinaryHeap::with_capacity(count as usize) }
    }

    /// Number of lanes.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lanes.len()).unwrap_or(u32::MAX)
    }

    /// Number of batches at idle priority that do not stand still.
    pub(crate) fn working_at_idle_priority(&self) -> u32 {
        let idle = self.lanes.iter().skip(self.ordinary as usize);
        let working = idle.filter(|lane| lane.running.is_some() && !lane.stands_still).count();
        u32::try_from(working).unwrap_or(u32::MAX)
    }

    /// Lets the lane of idle priority on the device of another one stand still, or go on.
    fn hold(&mut self, lane: u32, now: u64, stands_still: bool) {
        let number = lane.saturating_add(self.ordinary);
        if lane >= self.ordinary {
            return;
        }
        let Some(idle) = self.lanes.get_mut(number as usize) else { return };
        if idle.stands_still == stands_still {
            return;
        }
        idle.stands_still = stands_still;
        let Some(running) = &mut idle.running else { return };
        idle.epoch = idle.epoch.wrapping_add(1);
        running.end =
            if stands_still { running.end.saturating_sub(now) } else { now.saturating_add(running.end) };
        if !stands_still {
            self.ends.push(Reverse((running.end, number, idle.epoch)));
        }
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
    pub(crate) fn go_down(&mut self, lane: u32, now: u64) -> (Option<Running>, VecDeque<Held>) {
        self.hold(lane, now, false);
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
        self.hold(lane, now, true);
        let Some(entry) = self.lane_mut(lane) else { return };
        if entry.stands_still {
            entry.running = Some(Running { held, start: now, end: time });
            return;
        }
        let end = now.saturating_add(time);
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
        let Some(held) = waiting.and_then(|lane| lane.waiting.pop_front()) else {
            self.hold(lane, now, false);
            return false;
        };
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

/// The lanes that run a model.
pub(crate) fn lanes_of(workload: &Workload, model: &Model) -> ModelLanes {
    let lanes = &workload.lanes;
    if model.lanes.is_none() && !lanes.idle_priority {
        return ModelLanes::All;
    }
    let of = |lane| LaneId(if lanes.idle_priority && model.best_effort { lanes.count + lane } else { lane });
    let given = model.lanes.clone().unwrap_or_else(|| (0..lanes.count).collect());
    ModelLanes::Only(given.into_iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(batch: u64) -> Held {
        Held { batch: BatchId(batch), model: 0, canary: false, rows: 1 }
    }

    #[test]
    fn a_second_batch_waits_for_the_first() {
        let mut lanes = Lanes::new((2, 2), 2);
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
    fn a_batch_at_idle_priority_stands_still_while_its_device_runs_another() {
        let mut lanes = Lanes::new((2, 1), 2);
        lanes.come_up(0);
        lanes.come_up(1);
        lanes.give(1, held(1), 0, || 10).unwrap();
        assert_eq!((lanes.next_end(), lanes.working_at_idle_priority()), (Some(10), 1));
        lanes.give(0, held(2), 4, || 5).unwrap();
        assert_eq!((lanes.next_end(), lanes.working_at_idle_priority()), (Some(9), 0));
        lanes.give(0, held(3), 5, || 5).unwrap();
        assert_eq!(lanes.finish_next().unwrap().1.held, held(2));
        assert!(lanes.start_next(0, 9, |_| 1));
        assert_eq!(lanes.finish_next().unwrap().1.held, held(3));
        assert!(!lanes.start_next(0, 10, |_| 1));
        assert_eq!(lanes.finish_next(), Some((1, Running { held: held(1), start: 0, end: 16 })));
        lanes.give(0, held(4), 20, || 5).unwrap();
        lanes.give(1, held(5), 21, || 5).unwrap();
        assert_eq!(lanes.finish_next().unwrap().0, 0);
        assert_eq!(lanes.next_end(), None, "it stands still until the lane is free");
        assert!(!lanes.start_next(0, 25, |_| 1));
        assert_eq!(lanes.finish_next(), Some((1, Running { held: held(5), start: 21, end: 30 })));
    }

    #[test]
    fn the_end_of_a_batch_that_was_taken_off_is_forgotten() {
        let mut lanes = Lanes::new((1, 1), 1);
        lanes.come_up(0);
        lanes.give(0, held(1), 0, || 5).unwrap();
        assert_eq!(lanes.preempt(0, BatchId(9)), None);
        assert!(lanes.preempt(0, BatchId(1)).unwrap().is_some());
        lanes.give(0, held(2), 1, || 9).unwrap();
        assert_eq!(lanes.next_end(), Some(10));
        assert_eq!(lanes.go_down(0, 3).0.unwrap().held, held(2));
        assert_eq!(lanes.next_end(), None);
    }
}
