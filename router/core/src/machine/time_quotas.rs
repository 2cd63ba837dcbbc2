//! Lanes with time quotas: a lane counts as free while it has a token, and as busy until it gets one.

use crate::cycle::SlotBatch;
use crate::machine::Router;
use crate::machine::time_slices::Match;
use crate::queue::Queue;
use crate::time_quota::Wait;
use crate::{LaneId, LaneSpec};

impl Router {
    /// Gives and takes tokens that time alone decides about.
    pub(super) fn refresh_due_quotas(&mut self) {
        if self.tokens.is_empty() {
            return;
        }
        let due: Vec<u32> = self.tokens.due(self.now).collect();
        for device in due {
            self.refresh_quotas(device);
        }
    }

    /// Gives and takes the tokens of a device.
    fn refresh_quotas(&mut self, device: u32) {
        let mut changed = Vec::new();
        self.tokens.refresh(self.now, device, &mut changed);
        for lane in changed {
            self.settle_lane(lane);
        }
    }

    /// What a lane without a token waits for.
    pub(super) fn token_wait(&self, lane: LaneId) -> Option<Wait> {
        if self.tokens.is_empty() { None } else { self.tokens.wait(lane) }
    }

    /// Sets the quota of a lane that becomes active.
    pub(super) fn set_quota(&mut self, spec: &LaneSpec) {
        match spec.quota {
            Some(quota) => {
                let is_new = self.tokens.device_of(spec.lane).is_none();
                self.tokens.set(self.now, spec.lane, quota);
                if is_new && self.lane(spec.lane).is_some_and(|lane| !lane.holding.is_empty()) {
                    let end = self.begins_on(spec.lane);
                    self.tokens.started(self.now, spec.lane, end);
                }
            }
            None => self.tokens.remove(spec.lane),
        }
    }

    /// Gives and takes tokens because a lane has another quota.
    pub(super) fn quota_changed(&mut self, lane: LaneId) {
        self.note_waits(lane);
        if let Some(device) = self.tokens.device_of(lane) {
            self.refresh_quotas(device);
        }
    }

    /// Notes for which lanes requests wait, because models moved to other lanes.
    pub(super) fn recount_waits(&mut self) {
        let lanes: Vec<LaneId> = self.tokens.lanes().collect();
        for lane in lanes {
            self.note_waits(lane);
        }
    }

    /// A lane gets no further batch.
    pub(super) fn quota_leaves(&mut self, lane: LaneId) {
        let device = self.tokens.device_of(lane);
        self.tokens.leave(lane);
        device.into_iter().for_each(|device| self.refresh_quotas(device));
    }

    /// A lane failed or was removed.
    pub(super) fn quota_ends(&mut self, lane: LaneId) {
        let device = self.tokens.device_of(lane);
        self.tokens.remove(lane);
        device.into_iter().for_each(|device| self.refresh_quotas(device));
    }

    /// A lane started a batch.
    pub(super) fn token_taken(&mut self, lane: LaneId) {
        let Some(device) = self.tokens.device_of(lane) else { return };
        let end = self.begins_on(lane);
        self.tokens.started(self.now, lane, end);
        self.refresh_quotas(device);
    }

    /// A lane's batch ended.
    pub(super) fn token_returned(&mut self, lane: LaneId) {
        let Some(device) = self.tokens.device_of(lane) else { return };
        self.tokens.ended(self.now, lane);
        self.refresh_quotas(device);
    }

    /// Lanes of a pool that may have quotas.
    fn lanes_with_tokens(&self, pool: u32) -> Vec<LaneId> {
        if self.tokens.is_empty() {
            return Vec::new();
        }
        self.pools.get(pool).iter().flat_map(|pool| pool.cycled.iter()).collect()
    }

    /// Notes that requests wait for the lanes of a pool.
    pub(super) fn pool_waits(&mut self, pool: u32) {
        for lane in self.lanes_with_tokens(pool) {
            self.set_waits(lane, true);
        }
    }

    /// Notes for which lanes of a pool requests still wait, after one of its queues was closed.
    pub(super) fn recount_pool(&mut self, pool: u32) {
        for lane in self.lanes_with_tokens(pool) {
            self.note_waits(lane);
        }
    }

    fn set_waits(&mut self, lane: LaneId, waits: bool) {
        if let Some(device) = self.tokens.set_waits(self.now, lane, waits) {
            self.refresh_quotas(device);
        }
    }

    /// Notes whether requests wait for a lane.
    pub(super) fn note_waits(&mut self, id: LaneId) {
        if self.tokens.quota(id).is_none() {
            return;
        }
        let pools = self.lane(id).map(|lane| lane.pools.as_slice()).unwrap_or_default();
        let waiting = |(_, queue): (u32, &Queue)| !queue.is_empty() && pools.contains(&queue.key.pool);
        let waits = self.queues.iter().any(waiting);
        self.set_waits(id, waits);
    }

    /// The free lane with a ready queue that lacks most of its guaranteed time.
    pub(super) fn token_match(&self) -> Option<Match> {
        if self.tokens.is_empty() {
            return None;
        }
        let pools = self.pools.noted().map(|(_, pool)| pool).filter(|pool| pool.ready.first().is_some());
        let free = pools.flat_map(|pool| pool.cycled.iter().filter(|&lane| pool.free.contains(lane)));
        let found = free.filter_map(|lane| Some((self.tokens.gap(lane), self.next_on_token(lane)?)));
        found.min_by_key(|(gap, found)| (std::cmp::Reverse(*gap), found.lane)).map(|(_, found)| found)
    }

    fn next_on_token(&self, id: LaneId) -> Option<Match> {
        let rows = self.tokens.quota(id)?.rows;
        let lane = self.lane(id).filter(|lane| lane.round.is_none())?;
        let first = lane.pools.iter().filter_map(|&pool| self.pools.get(pool)?.ready.first());
        let first = first.filter(|&(_, queue)| self.is_in_time_on(queue, lane.lane_class)).min();
        let slot = SlotBatch { slot: 0, first: false, rows };
        first.map(|(_, queue)| Match { queue, lane: id, slot: Some(slot) })
    }
}
