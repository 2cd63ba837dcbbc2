//! Applying a new plan of lanes: everything is checked first, then everything is applied.

use invariant::expected;

use std::collections::BTreeSet;

use crate::event::{Effect, Effects};
use crate::lane::{Lane, LaneMode};
use crate::machine::Router;
use crate::queue::{Queue, QueueKey};
use crate::switch::{ModelMove, Switch, SwitchRefusal};
use crate::{LaneId, ModelId, Nanos};

impl Router {
    pub(super) fn switch(&mut self, switch: &Switch, effects: &mut Effects) {
        if let Err(refusal) = self.check_switch(switch) {
            effects.push(Effect::SwitchRefused(refusal));
            return;
        }
        effects.push(Effect::Switched);
        for &lane in &switch.drain {
            self.drain_lane(lane);
        }
        for lane in &switch.up {
            self.leave_pools(lane.spec.lane);
            self.bring_up(&lane.spec, &lane.after);
        }
        for change in &switch.models {
            self.move_model(change);
        }
        self.return_unbound_queues();
        for &lane in &switch.drain {
            if let Some(own) = self.lane_mut(lane).and_then(|lane| lane.own_pool.take()) {
                self.remove_pool(own);
            }
            self.idle_if_empty(lane, effects);
        }
        self.refuse_without_lane(effects);
        self.recount_waits();
        self.plan_soon();
    }

    fn check_switch(&self, switch: &Switch) -> Result<(), SwitchRefusal> {
        let (mut up, mut rest, mut models) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for spec in switch.up.iter().map(|lane| &lane.spec) {
            if spec.lane.0 >= self.config.max_lanes {
                return Err(SwitchRefusal::LaneBeyondBound(spec.lane));
            }
            if !up.insert(spec.lane) {
                return Err(SwitchRefusal::LaneTwice(spec.lane));
            }
        }
        for &lane in &switch.drain {
            if self.lane(lane).is_none() {
                return Err(SwitchRefusal::UnknownLane(lane));
            }
            if up.contains(&lane) || !rest.insert(lane) {
                return Err(SwitchRefusal::LaneTwice(lane));
            }
        }
        for change in &switch.models {
            if self.model(change.model).is_none() {
                return Err(SwitchRefusal::UnknownModel(change.model));
            }
            if !models.insert(change.model) {
                return Err(SwitchRefusal::ModelTwice(change.model));
            }
        }
        self.check_leases(switch, &up, &rest)
    }

    /// A lane must not follow one that stays active, because it might wait forever.
    fn check_leases(
        &self,
        switch: &Switch,
        up: &BTreeSet<LaneId>,
        rest: &BTreeSet<LaneId>,
    ) -> Result<(), SwitchRefusal> {
        let goes_on = |lane: LaneId| self.lane(lane).is_some_and(Lane::is_active) && !rest.contains(&lane);
        for lane in &switch.up {
            if let Some(&after) = lane.after.iter().find(|&&after| up.contains(&after) || goes_on(after)) {
                return Err(SwitchRefusal::AfterActive { lane: lane.spec.lane, after });
            }
        }
        for (lane, known) in self.lanes.iter().filter(|(id, _)| goes_on(*id) && !up.contains(id)) {
            let after = known.after.iter().find(|&after| up.contains(after));
            if let Some(&after) = after {
                return Err(SwitchRefusal::AfterActive { lane, after });
            }
        }
        Ok(())
    }

    fn drain_lane(&mut self, id: LaneId) {
        let fence = self.batches.generation();
        let Some(lane) = self.lane_mut(id).filter(|lane| lane.is_active()) else { return };
        (lane.mode, lane.fence) = (LaneMode::Draining, fence);
        lane.after.clear();
        self.leave_pools(id);
        self.quota_leaves(id);
    }

    /// Reports once that a draining lane holds no batch any more.
    pub(super) fn idle_if_empty(&mut self, id: LaneId, effects: &mut Effects) {
        let empty = |lane: &&mut Lane| lane.mode == LaneMode::Draining && lane.holding.is_empty();
        if let Some(lane) = self.lane_mut(id).filter(empty) {
            lane.mode = LaneMode::Idle;
            effects.push(Effect::LaneIdle(id));
        }
    }

    /// When the lanes that a lane follows should be empty; `None` if they are.
    pub(super) fn lease_end(&self, lane: &Lane) -> Option<Nanos> {
        if lane.after.is_empty() {
            return None;
        }
        let before = lane.after.iter().filter_map(|&id| self.lane(id)).flat_map(|lane| &lane.holding);
        before.filter_map(|&slot| self.batches.at(slot)).map(|batch| batch.expected_end).max()
    }

    /// Settles the lanes that follow a lane, because it finished a batch.
    pub(super) fn pass_leases(&mut self, from: LaneId) {
        for index in 0..self.lanes.slots() {
            let heir = LaneId(u32::try_from(index).unwrap_or(u32::MAX));
            if self.lane(heir).is_some_and(|lane| lane.after.contains(&from)) {
                self.settle_lane(heir);
            }
        }
    }

    fn move_model(&mut self, change: &ModelMove) {
        let id = change.model;
        let Some(model) = expected!(self.model(id), "router.moved_model_unknown") else { return };
        let (old, counted, objective) = (model.pool, model.counted, model.objective);
        if let Some(model) = self.model_mut(id) {
            change.times.iter().for_each(|times| model.costs.know(times.lane_class, &times.profile));
        }
        let shared = self.pools.find(&change.lanes);
        let new = shared.unwrap_or_else(|| self.add_pool(&change.lanes));
        if new == old {
            return;
        }
        self.inherit(new, old, shared.is_some());
        if let Some(pool) = self.pools.get_mut(new) {
            pool.models += 1;
            pool.demand.joined(counted, objective);
        }
        if let Some(model) = self.model_mut(id) {
            model.pool = new;
        }
        self.move_queues(id, |pool| pool == old, new);
        if let Some(pool) = self.pools.get_mut(old) {
            pool.models -= 1;
            pool.demand.left(counted);
            if pool.models == 0 {
                self.remove_pool(old);
            } else {
                self.retighten(old);
                self.pool_changed(old);
            }
        }
        self.plan_ahead(old);
        self.plan_ahead(new);
        self.size_batches(new);
        self.pool_changed(new);
    }

    /// Copies load and mean batch time from the pool that a model leaves: the best estimate for a new set of lanes.
    fn inherit(&mut self, new: u32, old: u32, shared: bool) {
        if shared {
            return;
        }
        let Some(before) = expected!(self.pools.get(old), "router.left_pool_unknown") else { return };
        let (mut load, demand) = (before.load, before.demand.of_heirs());
        load.was(self.now, before.busy_share());
        if let Some(pool) = self.pools.get_mut(new) {
            (pool.load, pool.demand) = (load, demand);
        }
    }

    /// Requests bound to a lane that is not active, or no longer runs their model, may run on any lane of the model.
    fn return_unbound_queues(&mut self) {
        for index in 0..self.models.slots() {
            let id = ModelId(u32::try_from(index).unwrap_or(u32::MAX));
            let Some(model) = self.model(id) else { continue };
            let own_pool = model.pool;
            let lost = |pool: u32| {
                let lane = self.pools.get(pool).and_then(|pool| pool.up.first());
                pool != own_pool && !lane.is_some_and(|lane| self.runs_on(own_pool, lane))
            };
            let lost: BTreeSet<u32> =
                model.queues.iter().map(|(key, _)| key.pool).filter(|&pool| lost(pool)).collect();
            if !lost.is_empty() {
                self.move_queues(id, |pool| lost.contains(&pool), own_pool);
            }
        }
    }

    fn runs_on(&self, pool: u32, lane: LaneId) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.up.contains(lane))
    }

    fn move_queues(&mut self, model: ModelId, from: impl Fn(u32) -> bool, to: u32) {
        let Some(moved) = expected!(self.model(model), "router.moved_model_unknown") else { return };
        let queues: Vec<(QueueKey, u32)> =
            moved.queues.iter().filter(|(key, _)| from(key.pool)).copied().collect();
        for (key, slot) in queues {
            self.file_ready(slot, None);
            self.move_queue(key, slot, to);
        }
    }

    /// Moves a queue to another pool. It keeps its order and merges with the queue of its key there.
    fn move_queue(&mut self, key: QueueKey, slot: u32, to: u32) {
        let there = QueueKey { pool: to, ..key };
        let other = self.model(key.model).and_then(|model| model.queue(there));
        let Some(queue) = expected!(self.queues.get_mut(slot), "router.moved_queue_unknown") else { return };
        queue.deferred = false;
        if let Some(pool) = self.pools.get_mut(key.pool) {
            pool.deferred.retain(|deferred| *deferred != slot);
        }
        match other {
            Some(other) => {
                let moved = std::mem::replace(queue, Queue::new(key));
                if let Some(other_queue) = self.queues.get_mut(other) {
                    other_queue.absorb(moved, other, &mut self.requests);
                }
                self.queues.note(other);
            }
            None => {
                queue.key = there;
                let model = self.model_mut(key.model);
                let entry = model.and_then(|model| model.queues.iter_mut().find(|(_, open)| *open == slot));
                if let Some((key, _)) = entry {
                    *key = there;
                }
            }
        }
        self.queues.note(slot);
    }
}

#[cfg(test)]
mod tests;
