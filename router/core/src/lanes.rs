//! Lanes by number, and when those that still hold a batch may get the next one.

use invariant::expected;

use crate::cycle::{Cycle, Round};
use crate::lane::Lane;
use crate::timers::Timers;
use crate::{LaneId, LaneSpec, Nanos};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lanes {
    lanes: Vec<Option<Lane>>,
    /// Number of lanes with a cycle.
    cycles: u32,
    timers: Timers,
}

impl Lanes {
    pub(crate) fn get(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(id.0 as usize).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    /// Returns the lane with the number of `spec`, and creates it if it does not exist.
    pub(crate) fn open(&mut self, spec: &LaneSpec) -> Option<&mut Lane> {
        let index = spec.lane.0 as usize;
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, || None);
        }
        self.lanes.get_mut(index).map(|entry| entry.get_or_insert_with(|| Lane::new(spec)))
    }

    pub(crate) fn remove(&mut self, id: LaneId) -> Option<Lane> {
        let lane = self.lanes.get_mut(id.0 as usize).and_then(Option::take)?;
        self.cycles -= u32::from(lane.round.is_some());
        Some(lane)
    }

    /// Gives a lane this cycle, from its first slot on, if it has another one or none.
    pub(crate) fn set_cycle(&mut self, id: LaneId, cycle: Option<&Cycle>) {
        let lane = self.lanes.get_mut(id.0 as usize).and_then(Option::as_mut);
        let Some(lane) = expected!(lane, "router.cycle_of_unknown_lane") else { return };
        if lane.round.as_ref().map(|round| &round.cycle) != cycle {
            self.cycles -= u32::from(lane.round.is_some());
            lane.round = cycle.cloned().map(|cycle| Box::new(Round::new(cycle)));
            self.cycles += u32::from(lane.round.is_some());
        }
    }

    /// Number of lanes with a cycle.
    pub(crate) fn cycles(&self) -> u32 {
        self.cycles
    }

    /// Sets when a lane that still holds a batch may get the next one; `NEVER` for other lanes.
    pub(crate) fn set_timer(&mut self, id: LaneId, at: Nanos) {
        self.timers.set(id.0, at);
    }

    /// When the first such lane is due.
    pub(crate) fn next_timer(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// Removes the timer of a lane that is due, and returns the lane.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<LaneId> {
        self.timers.pop_due(now).map(LaneId)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LaneId, &Lane)> + Clone {
        (0..).map(LaneId).zip(&self.lanes).filter_map(|(id, lane)| Some((id, lane.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut().flatten()
    }

    /// Number of lanes and vacant places.
    pub(crate) fn slots(&self) -> usize {
        self.lanes.len()
    }

    #[cfg(test)]
    pub(crate) fn miscount_cycles(&mut self) {
        self.cycles += 1;
    }
}
