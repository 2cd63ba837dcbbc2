//! Reports of lanes on their batches.

use invariant::expected;

use crate::batch::Observation;
use crate::event::{BatchReport, Effects, Outcome, Reason};
use crate::machine::Router;
use crate::request::Request;
use crate::{BatchId, LaneId, ModelId, Nanos};

/// Preemptions of a best-effort request after which it pauses before it starts a batch again. Of requests that one of twelve idle moments
/// is long enough for, 94 % are answered before.
const RETURNS_AT_ONCE: u8 = 32;
/// The first pause. Further ones are twice as long each, so that work which is always lost takes little of the lanes' time.
const PAUSE: Nanos = Nanos::from_millis(20);
/// The longest pause is this many times twice as long, 1.28 s.
const PAUSE_DOUBLINGS: u8 = 6;

/// When a request that was preempted may start a batch again.
fn pauses_until(now: Nanos, request: &Request) -> Nanos {
    let more = request.returned.checked_sub(RETURNS_AT_ONCE).filter(|_| request.class.is_best_effort());
    more.map_or(Nanos::ZERO, |more| now.after(Nanos(PAUSE.0 << more.min(PAUSE_DOUBLINGS))))
}

impl Router {
    pub(super) fn batch_done(&mut self, report: BatchReport, effects: &mut Effects) {
        // A report may arrive after its lane failed, which ended the batch.
        let Some(slot) = self.batches.slot_of(report.batch) else { return };
        let Some((lane, model, started)) = self.take_off_lane(slot) else { return };
        if report.ok {
            self.learn(slot, started);
        }
        self.settle_batch(slot, started);
        let several = self.batches.at(slot).is_some_and(|batch| batch.members.len() > 1);
        let mut position = 0;
        while let Some(id) = self.batches.member(slot, position) {
            position += 1;
            if self.requests.get(id).is_none() {
                continue;
            }
            if report.ok {
                self.finish(id, Outcome::Done, Reason::Answered, effects);
            } else if several {
                // The input of one member may be the cause. Running each alone shows which.
                if let Some(request) = self.requests.at_mut(id.slot()) {
                    request.alone = true;
                }
                self.wait_again(id.slot(), Reason::NoLane, effects);
            } else {
                self.finish(id, Outcome::Failed, Reason::EngineFailed, effects);
            }
        }
        self.batches.close(slot);
        self.model_changed(model);
        self.retire_if_done(model, effects);
        self.idle_if_empty(lane, effects);
    }

    /// The requests of a batch that did not run wait again. None is rejected: they were admitted once. Queues may exceed their bounds
    /// by them, if others were admitted to their places since.
    pub(super) fn batch_returned(&mut self, id: BatchId, effects: &mut Effects) {
        // A preempted batch may end in another way before the lane gives it back.
        let Some(slot) = self.batches.slot_of(id) else { return };
        let Some((lane, model, started)) = self.take_off_lane(slot) else { return };
        self.settle_batch(slot, started);
        let mut position = 0;
        while let Some(id) = self.batches.member(slot, position) {
            position += 1;
            if self.requests.get(id).is_some() {
                if let Some(request) = self.requests.at_mut(id.slot()) {
                    request.returned = request.returned.saturating_add(1);
                    request.pauses_until = pauses_until(self.now, request);
                }
                self.wait_again(id.slot(), Reason::NoLane, effects);
            }
        }
        self.batches.close(slot);
        self.retire_if_done(model, effects);
        self.idle_if_empty(lane, effects);
    }

    /// The lane that ran a batch failed. One of the requests may be the cause, and running each alone shows which. A
    /// request that was present at two failures is not run a third time.
    pub(super) fn batch_lost(&mut self, slot: u32, effects: &mut Effects) {
        let Some(model) = self.no_longer_in_flight(slot) else { return };
        let mut position = 0;
        while let Some(id) = self.batches.member(slot, position) {
            position += 1;
            let Some(request) = self.requests.at_mut(id.slot()).filter(|request| request.id == id) else {
                continue;
            };
            if request.lost {
                self.finish(id, Outcome::Failed, Reason::LaneFailedTwice, effects);
                continue;
            }
            (request.lost, request.alone) = (true, true);
            self.wait_again(id.slot(), Reason::LaneFailed, effects);
        }
        self.batches.close(slot);
        self.model_changed(model);
        self.retire_if_done(model, effects);
    }

    /// Takes a batch out of the counts of its model and returns the model.
    pub(super) fn no_longer_in_flight(&mut self, slot: u32) -> Option<ModelId> {
        let batch = expected!(self.batches.at(slot), "router.held_batch_unknown")?;
        let (id, members) = (batch.model, u32::try_from(batch.members.len()).unwrap_or(u32::MAX));
        if let Some(protection) = self.protection.as_mut().filter(|_| batch.best_effort) {
            protection.ends(self.now);
        }
        if let Some(model) = self.model_mut(id) {
            model.in_flight = model.in_flight.saturating_sub(members);
            model.running = model.running.saturating_sub(1);
        }
        self.give_resources_back(id);
        Some(id)
    }

    /// A request of a batch without results waits again, unless its model has no lane left.
    fn wait_again(&mut self, slot: u32, without_lane: Reason, effects: &mut Effects) {
        let request = expected!(self.requests.at(slot), "router.returned_request_unknown");
        let Some((id, model)) = request.map(|request| (request.id, request.model)) else { return };
        let pool = self.model(model).and_then(|model| self.pools.get(model.pool));
        if pool.is_none_or(|pool| pool.up.is_empty()) {
            self.finish(id, Outcome::Refused, without_lane, effects);
        } else {
            self.enqueue(slot);
        }
    }

    /// Takes a batch off its lane. Returns the lane, the model and the start of the batch: its dispatch, or the report of
    /// the batch before it.
    fn take_off_lane(&mut self, slot: u32) -> Option<(LaneId, ModelId, Nanos)> {
        let now = self.now;
        let model_id = self.no_longer_in_flight(slot)?;
        let batch = expected!(self.batches.at(slot), "router.held_batch_unknown")?;
        let (lane_id, dispatched) = (batch.lane, batch.dispatched);
        let mut began = dispatched;
        if let Some(lane) = self.lane_mut(lane_id) {
            lane.holding.retain(|held| *held != slot);
            began = dispatched.max(std::mem::replace(&mut lane.last_report, now));
        }
        self.settle_lane(lane_id);
        self.token_returned(lane_id);
        if self.lane(lane_id).is_some_and(|lane| !lane.is_active()) {
            self.pass_leases(lane_id);
        }
        Some((lane_id, model_id, began))
    }

    fn learn(&mut self, slot: u32, started: Nanos) {
        let now = self.now;
        let Some(batch) = expected!(self.batches.at(slot), "router.reported_batch_unknown") else { return };
        let (rows, row_bytes, model) = (batch.rows, batch.row_bytes, batch.model);
        let first = batch.members.first().and_then(|&id| self.requests.get(id));
        let slo = first.filter(|request| request.deadline != Nanos::NEVER);
        let objective = slo.map(|request| request.objective);
        let slo = slo.map(|request| request.deadline.since(request.arrived));
        let time = now.since(started);
        let lane_class = self.lane_class_of(batch.lane);
        let Some(model) = expected!(self.models.get_mut(model), "router.batch_of_unknown_model") else {
            return;
        };
        model.costs.observe(lane_class, rows, row_bytes, time);
        let tightest = self.pools.get(model.pool).map_or(Nanos::NEVER, |pool| pool.demand.tightest());
        let (rate, max_batch, cost) = (model.rate.per_second(now), model.largest, model.costs.on(lane_class));
        model
            .policy
            .observe(now, &Observation { rows, row_bytes, time, slo, rate, max_batch, tightest, cost });
        if let Some(pool) = self.pools.get_mut(model.pool) {
            pool.demand.learned(now, &model.policy, &mut model.counted, objective);
        }
    }

    /// Removes the demand of models without recent batches, so that their objective no longer affects other models.
    pub(super) fn forget_silent(&mut self) {
        if !self.silence.is_due(self.now) {
            return;
        }
        let mut touched: Vec<u32> = Vec::new();
        for (_, model) in self.models.iter_mut() {
            let pool = self.pools.get_mut(model.pool);
            if pool.is_some_and(|pool| pool.demand.silenced(self.now, &mut model.counted)) {
                touched.push(model.pool);
            }
        }
        for id in touched {
            self.retighten(id);
        }
    }

    /// Sets the tightest objective of a pool to that of its models with demand.
    pub(super) fn retighten(&mut self, id: u32) {
        let theirs = self.models.iter().map(|(_, model)| model).filter(|model| model.pool == id);
        if let Some(pool) = self.pools.get_mut(id) {
            pool.demand.retighten(theirs.map(|model| (model.counted, model.objective)));
        }
    }

    /// Evaluates the queues of a model again, because its batch times changed.
    pub(super) fn model_changed(&mut self, id: ModelId) {
        let Some(model) = expected!(self.models.get(id), "router.changed_model_unknown") else {
            return;
        };
        self.queues.note_all(model.queues.iter().map(|(_, slot)| *slot));
    }

    /// Tells the lane's pools whether it can take a batch.
    pub(super) fn settle_lane(&mut self, id: LaneId) {
        let now = self.now;
        // Draining, idle and failed lanes are in no pool.
        let Some(lane) = self.lane(id).filter(|lane| lane.is_active()) else { return };
        let yields = self.yielding(lane).is_some();
        let has_space = yields || lane.holding.len() < lane.depth() + self.given_back(lane);
        let last = lane.holding.last().and_then(|&slot| self.batches.at(slot));
        let own_end = last.filter(|_| !yields).map(|batch| batch.expected_end);
        let (end, evaluate_at) = match (self.lease_end(lane), own_end) {
            (Some(lease), own) => (Some(own.map_or(lease, |own| own.max(lease))), None),
            (None, None) => match self.token_wait(id) {
                Some(wait) => (Some(wait.begins), Some(wait.look).filter(|&at| at != Nanos::NEVER)),
                None => (None, None),
            },
            (None, Some(end)) => {
                let from = end.before(lane.ahead);
                if has_space && from <= now { (None, None) } else { (Some(end), has_space.then_some(from)) }
            }
        };
        self.lanes.set_timer(id, evaluate_at.unwrap_or(Nanos::NEVER));
        let Some(lane) = expected!(self.lane_mut(id), "router.settled_lane_unknown") else { return };
        let before = std::mem::replace(&mut lane.end, end);
        lane.yields = yields;
        let pools = std::mem::take(&mut lane.pools);
        for &pool in &pools {
            if let Some(pool) = self.pools.get_mut(pool) {
                pool.lane_is(now, id, before, (end, yields));
            }
            if end.is_none() {
                self.pools.note(pool);
                self.ask_deferred(pool);
            }
        }
        if let Some(lane) = self.lane_mut(id) {
            lane.pools = pools;
        }
    }
}
