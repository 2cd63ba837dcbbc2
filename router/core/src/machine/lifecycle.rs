//! Adding and removing models and lanes, and draining.

use invariant::expected;

use crate::batch;
use crate::config::{LaneSpec, ModelLanes, ModelSpec};
use crate::event::{Effect, Effects, Outcome, Reason};
use crate::lane::{Lane, LaneMode};
use crate::machine::Router;
use crate::model::Model;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::{LaneId, ModelId, Nanos};

impl Router {
    pub(super) fn model_up(&mut self, spec: &ModelSpec) {
        if spec.model.0 >= self.config.max_models || self.model(spec.model).is_some() {
            return;
        }
        let pool = self.pools.find(&spec.lanes).unwrap_or_else(|| self.add_pool(&spec.lanes));
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.models += 1;
        }
        self.resources.know(&spec.rate_limit);
        self.models.insert(spec.model, Model::new(spec, pool));
        self.plan_ahead(pool);
        self.size_batches(pool);
        self.plan_soon();
    }

    /// Takes up a model's settings. Its queues are evaluated again, because the policy may decide differently.
    pub(super) fn change_model(&mut self, spec: &ModelSpec) {
        let Some(model) = self.models.remove(spec.model) else { return };
        let model = model.changed(spec);
        let pool = model.pool;
        for (_, queue) in &model.queues {
            self.queues.note(*queue);
        }
        self.models.insert(spec.model, model);
        self.plan_ahead(pool);
        self.size_batches(pool);
        self.plan_soon();
    }

    pub(super) fn model_down(&mut self, id: ModelId, effects: &mut Effects) {
        if let Some(model) = self.model_mut(id) {
            model.retiring = true;
        }
        self.retire_if_done(id, effects);
    }

    pub(super) fn retire_if_done(&mut self, id: ModelId, effects: &mut Effects) {
        let done = |model: &&Model| model.retiring && model.unfinished() == 0 && model.queues.is_empty();
        let Some((pool_id, counted)) = self.model(id).filter(done).map(|model| (model.pool, model.counted))
        else {
            return;
        };
        self.models.remove(id);
        if let Some(protection) = &mut self.protection {
            protection.forget(id);
        }
        if let Some(pool) = self.pools.get_mut(pool_id) {
            pool.models -= 1;
            pool.demand.left(counted);
            if pool.models == 0 {
                self.remove_pool(pool_id);
            }
        }
        self.plan_ahead(pool_id);
        self.plan_soon();
        effects.push(Effect::Retired(id));
    }

    pub(super) fn add_pool(&mut self, lanes: &ModelLanes) -> u32 {
        let id = self.pools.add(Pool::new(lanes.clone()));
        for index in 0..self.lanes.slots() {
            let lane = LaneId(u32::try_from(index).unwrap_or(u32::MAX));
            if lanes.contain(lane) && self.lane(lane).is_some_and(Lane::is_active) {
                self.join(lane, id);
            }
        }
        id
    }

    /// Notes how long before their end of work the lanes of a pool may get the next batch, because its models changed.
    pub(super) fn plan_ahead(&mut self, id: u32) {
        let theirs = self.models.iter().map(|(_, model)| model).filter(|model| model.pool == id);
        let ahead = batch::least_ahead(theirs.map(|model| &model.policy));
        let Some(pool) = self.pools.get_mut(id).filter(|pool| pool.ahead != ahead) else { return };
        pool.ahead = ahead;
        let lanes: Vec<LaneId> = pool.up.iter().collect();
        for lane in lanes {
            self.plan_lane_ahead(lane);
        }
    }

    fn plan_lane_ahead(&mut self, id: LaneId) {
        let Some(lane) = expected!(self.lane(id), "router.planned_lane_unknown") else { return };
        let ahead = self.least_ahead(lane);
        if let Some(lane) = self.lane_mut(id).filter(|lane| lane.ahead != ahead) {
            lane.ahead = ahead;
            self.settle_lane(id);
        }
    }

    /// How long before its end of work a lane may get the next batch.
    pub(super) fn least_ahead(&self, lane: &Lane) -> Nanos {
        let pools = lane.pools.iter().filter_map(|&pool| self.pools.get(pool));
        let least = pools.map(|pool| pool.ahead).min();
        // A time slice may be another model's when the waiting batch would begin, and a quota used up.
        least
            .filter(|&least| lane.round.is_none() && !lane.has_quota && least != Nanos::NEVER)
            .unwrap_or_default()
    }

    pub(super) fn remove_pool(&mut self, id: u32) {
        let left: Vec<LaneId> = self.pools.get(id).iter().flat_map(|pool| pool.up.iter()).collect();
        for lane in self.lanes.iter_mut() {
            lane.pools.retain(|pool| *pool != id);
        }
        let deferred = self.pools.get_mut(id).map(|pool| std::mem::take(&mut pool.deferred));
        for slot in deferred.into_iter().flatten() {
            if let Some(queue) = self.queues.get_mut(slot) {
                queue.deferred = false;
            }
        }
        self.pools.remove(id);
        for lane in left {
            self.plan_lane_ahead(lane);
        }
    }

    /// Adds an active lane to a pool.
    fn join(&mut self, lane: LaneId, pool_id: u32) {
        let now = self.now;
        let Some(entry) = expected!(self.lane_mut(lane), "router.joining_lane_unknown") else { return };
        entry.pools.push(pool_id);
        let (end, yields, lane_class) = (entry.end, entry.yields, entry.lane_class);
        let has_cycle = entry.round.is_some() || entry.has_quota;
        if let Some(pool) = self.pools.get_mut(pool_id) {
            pool.load.was(now, pool.busy_share());
            pool.joined(lane, lane_class);
            if has_cycle {
                pool.cycled.insert(lane);
            }
            pool.lane_is(now, lane, None, (end, yields));
        }
        self.pools.note(pool_id);
    }

    /// The pool of a single lane, for requests bound to it. `None` if the lane is not up or does not run the model.
    pub(super) fn pool_of_lane(&mut self, lane: LaneId, model: ModelId) -> Option<u32> {
        let pool = self.pools.get(self.model(model)?.pool)?;
        if !pool.up.contains(lane) {
            return None;
        }
        if let Some(own) = self.lane(lane)?.own_pool {
            return Some(own);
        }
        let own = self.add_pool(&ModelLanes::Only(vec![lane]));
        // Counts one model, so that it exists as long as its lane.
        if let Some(pool) = self.pools.get_mut(own) {
            (pool.models, pool.bound) = (1, true);
        }
        self.lane_mut(lane)?.own_pool = Some(own);
        Some(own)
    }

    pub(super) fn lane_up(&mut self, spec: &LaneSpec) {
        if spec.lane.0 >= self.config.max_lanes || self.lane(spec.lane).is_some() {
            return;
        }
        self.bring_up(spec, &[]);
        self.plan_soon();
    }

    /// Activates a lane that is new, idle or currently in no pool. It gets work when the lanes that it follows are empty.
    pub(super) fn bring_up(&mut self, spec: &LaneSpec, after: &[LaneId]) {
        let fence = self.batches.generation();
        let Some(lane) = expected!(self.lanes.open(spec), "router.lane_without_slot") else { return };
        (lane.mode, lane.fence, lane.lane_class) = (LaneMode::Active, fence, spec.lane_class);
        lane.after = after.into();
        lane.has_quota = spec.quota.is_some();
        self.lanes.set_cycle(spec.lane, spec.cycle.as_ref());
        self.set_quota(spec);
        self.settle_lane(spec.lane);
        let theirs = |(id, pool): (u32, &Pool)| pool.lanes.contain(spec.lane).then_some(id);
        let pools: Vec<u32> = self.pools.iter().filter_map(theirs).collect();
        for pool in pools {
            self.join(spec.lane, pool);
            self.pool_changed(pool);
            if self.pools.get(pool).is_some_and(|pool| !pool.cycled.is_empty()) {
                self.size_batches(pool);
            }
        }
        self.plan_lane_ahead(spec.lane);
        self.quota_changed(spec.lane);
    }

    /// Takes a lane out of its pools.
    pub(super) fn leave_pools(&mut self, id: LaneId) {
        let now = self.now;
        self.lanes.set_timer(id, Nanos::NEVER);
        // A switch may bring up a lane that was never there.
        let Some(lane) = self.lane_mut(id) else { return };
        let (pools, end, lane_class) = (std::mem::take(&mut lane.pools), lane.end.take(), lane.lane_class);
        for pool_id in pools {
            let Some(pool) = expected!(self.pools.get_mut(pool_id), "router.lane_in_unknown_pool") else {
                continue;
            };
            let had_cycles = !pool.cycled.is_empty();
            pool.forget(now, (id, lane_class), end);
            self.pool_changed(pool_id);
            if had_cycles {
                self.size_batches(pool_id);
            }
        }
    }

    /// Removes a lane and ends each of its batches with `end`.
    pub(super) fn lane_down(
        &mut self,
        id: LaneId,
        end: fn(&mut Self, u32, &mut Effects),
        effects: &mut Effects,
    ) {
        self.leave_pools(id);
        // A lane may be reported failed by its supervisor and by its own thread.
        let Some(lane) = self.lanes.remove(id) else { return };
        for &slot in &lane.holding {
            end(self, slot, effects);
        }
        self.quota_ends(id);
        self.pass_leases(id);
        for other in self.lanes.iter_mut() {
            other.after.retain(|after| *after != id);
        }
        if let Some(own) = lane.own_pool {
            self.unbind(own, effects);
        }
        self.refuse_without_lane(effects);
        self.plan_soon();
    }

    pub(super) fn fail_batch(&mut self, slot: u32, effects: &mut Effects) {
        let Some(model) = self.no_longer_in_flight(slot) else { return };
        let mut position = 0;
        while let Some(member) = self.batches.member(slot, position) {
            position += 1;
            self.finish(member, Outcome::Failed, Reason::LaneFailed, effects);
        }
        self.batches.close(slot);
        self.retire_if_done(model, effects);
    }

    /// Moves requests that were bound to a removed lane to other lanes, and removes the lane's own pool.
    fn unbind(&mut self, own: u32, effects: &mut Effects) {
        let bound = |&(_, queue): &(u32, &Queue)| queue.key.pool == own;
        let slots: Vec<u32> = self.queues.iter().filter(bound).flat_map(|(_, queue)| queue.slots()).collect();
        for slot in slots {
            self.unqueue(slot);
            self.enqueue(slot);
        }
        self.evaluate_due(effects);
        self.remove_pool(own);
    }

    /// Evaluates the queues of a pool again, because its lanes changed.
    pub(super) fn pool_changed(&mut self, pool: u32) {
        self.queues.note_pool(pool);
    }

    pub(super) fn refuse_without_lane(&mut self, effects: &mut Effects) {
        let stranded = |&(_, queue): &(u32, &Queue)| {
            self.pools.get(queue.key.pool).is_none_or(|pool| pool.up.is_empty())
        };
        let slots: Vec<u32> =
            self.queues.iter().filter(stranded).flat_map(|(_, queue)| queue.slots()).collect();
        self.refuse(&slots, Reason::NoLane, effects);
    }

    pub(super) fn refuse_all_queued(&mut self, effects: &mut Effects) {
        let slots: Vec<u32> = self.queues.iter().flat_map(|(_, queue)| queue.slots()).collect();
        self.refuse(&slots, Reason::Draining, effects);
    }

    fn refuse(&mut self, slots: &[u32], reason: Reason, effects: &mut Effects) {
        for &slot in slots {
            let request = expected!(self.requests.at(slot), "router.queue_with_unknown_request");
            let Some(id) = request.map(|request| request.id) else { continue };
            self.unqueue(slot);
            self.finish(id, Outcome::Refused, reason, effects);
        }
    }
}
