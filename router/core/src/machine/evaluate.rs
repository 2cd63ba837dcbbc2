//! Evaluation of queues: drops requests that cannot meet their deadline, asks the policy, and files the result.

use invariant::expected;

use crate::batch::{Decision, PoolView, Proposal, QueueView, StartReason};
use crate::event::{Effects, Outcome, Reason, TimeoutAction};
use crate::machine::Router;
use crate::model::Model;
use crate::pool::Pool;
use crate::queue::{Priority, Queue, Urgency, Waiting};
use crate::request::{Request, Timing};
use crate::{Class, LaneClass, LaneId, ModelId, Nanos, RequestId};

/// One in this many requests that only the estimate would drop runs if a lane is free. Otherwise an estimate that is far
/// too long would drop everything and never be corrected.
const PROBE_EVERY: u32 = 16;

/// Deferred queues that are evaluated when a lane becomes free. The others have their timers.
const DEFERRED_ASKED: usize = 32;

impl Router {
    /// Evaluates queues that changed during this event or that are due.
    pub(super) fn evaluate_due(&mut self, effects: &mut Effects) {
        if self.drain_until.is_some_and(|until| until <= self.now) {
            self.refuse_all_queued(effects);
        }
        self.queues.note_due(self.now);
        while let Some(lane) = self.lanes.pop_due(self.now) {
            self.settle_lane(lane);
        }
        while let Some(queue) = self.queues.pop_noted() {
            self.evaluate(queue, effects);
        }
    }

    /// Drops hopeless requests, asks the policy, and files the queue as ready or under a time.
    fn evaluate(&mut self, slot: u32, effects: &mut Effects) {
        let drop_at = self.drop_hopeless(slot, effects);
        let Some(queue) = expected!(self.queues.get(slot), "router.changed_queue_unknown") else { return };
        if queue.is_empty() {
            self.close_queue(slot, effects);
            return;
        }
        let pool = queue.key.pool;
        self.pool_waits(pool);
        let Some(queue) = expected!(self.queues.get(slot), "router.changed_queue_unknown") else { return };
        let Some((head, _)) = expected!(self.head_of(queue), "router.queue_without_head") else { return };
        let mut evaluate_at = drop_at.min(self.promotion(queue, &head)).min(self.within_quota_from(queue));
        let ready = match self.decide(queue) {
            Some(Decision::Fire(proposal)) => Some(self.urgency(queue, &head, &proposal)),
            Some(Decision::Wait(until)) => {
                evaluate_at = evaluate_at.min(until.max(self.now.after(Nanos(1))));
                None
            }
            None => None,
        };
        let model = queue.key.model;
        let starts = ready.filter(|&(class, ..)| self.has_resources(model, class));
        match (ready, starts) {
            (Some((class, ..)), None) => self.wait_for_resources(slot, model, class),
            (None, _) => self.wants_no_resources(slot, model),
            (Some(_), Some(_)) => {}
        }
        let ready = starts;
        self.file_ready(slot, ready);
        if ready.is_none() {
            self.note_deferred(slot, pool);
        }
        if ready.is_some() {
            self.pools.note(pool);
            self.preempt_for(slot, effects);
        }
        self.queues.set_timer(slot, evaluate_at);
    }

    pub(super) fn head_of<'a>(&'a self, queue: &Queue) -> Option<(Waiting, &'a Model)> {
        Some((*queue.head()?, self.model(queue.key.model)?))
    }

    /// The policy's decision for a queue. Requests that must run alone are fired without asking it.
    pub(super) fn decide(&self, queue: &Queue) -> Option<Decision> {
        self.decide_within(queue, u32::MAX, self.next_lane_class(queue))
    }

    /// Until when a queue of best effort starts no batch, because of what it does to others.
    fn held_back_until(&self, queue: &Queue) -> Option<Nanos> {
        let protection = self.protection.as_ref().filter(|_| queue.key.class.is_best_effort())?;
        protection.closed_until(self.now)
    }

    /// The decision if a batch is limited to `rows` rows on a lane of `lane_class`.
    pub(super) fn decide_within(&self, queue: &Queue, rows: u32, lane_class: LaneClass) -> Option<Decision> {
        let pool = self.pools.get(queue.key.pool)?;
        self.decide_on(queue, rows, lane_class, || self.view_of(pool))
    }

    /// The same with the view of the queue's pool, which several queues may share.
    pub(super) fn decide_on<'a>(
        &'a self,
        queue: &'a Queue,
        rows: u32,
        lane_class: LaneClass,
        pool: impl FnOnce() -> PoolView<'a>,
    ) -> Option<Decision> {
        let (head, model) = self.head_of(queue)?;
        if let Some(until) = self.held_until(queue).or_else(|| self.held_back_until(queue)) {
            return Some(Decision::Wait(until));
        }
        match self.first_in_time_on(queue, lane_class) {
            Some(0) => {}
            Some(first) => return self.shot_past(queue, first, rows, lane_class).map(Decision::Fire),
            // It waits for a faster lane until no lane could finish it in time.
            None => return Some(Decision::Wait(Nanos::NEVER)),
        }
        if self.requests.at(head.slot)?.alone {
            let proposal =
                Proposal { skip: 0, take: head.rows, rank: head.deadline.0, reason: StartReason::Alone };
            return Some(Decision::Fire(proposal));
        }
        let oldest = self.requests.at(queue.oldest()?)?;
        let view = QueueView {
            head,
            rows: queue.rows.saturating_add(self.company(queue, model)),
            oldest_arrival: oldest.arrived,
            row_bytes: queue.row_bytes(),
            max_batch: model.largest.min(rows),
            cost: model.costs.on(lane_class),
            running: model.running,
            missing: model.missing(),
            pool: pool(),
            waiting: &queue.waiting,
            rate: &model.rate,
        };
        Some(model.policy.decide(self.now, &view))
    }

    pub(super) fn view_of<'a>(&self, pool: &'a Pool) -> PoolView<'a> {
        PoolView {
            lanes: pool.up.len().max(1),
            free: pool.free.len(),
            models: pool.models.max(1),
            load: pool.load,
            busy: pool.busy_share(),
            demand: pool.demand.sum(),
            tightest: pool.demand.tightest(),
            begins: self.begins(pool),
            only: pool.lanes.only(),
            mean_time: pool.demand.mean_time(),
            ends: &pool.ends,
        }
    }

    /// When a batch of this pool would begin.
    fn begins(&self, pool: &Pool) -> Nanos {
        match pool.free.first() {
            Some(lane) => self.begins_on(lane),
            None => pool.ends.first().map_or(self.now, |end| end.at.max(self.now)),
        }
    }

    /// When a batch handed to a lane would begin.
    pub(super) fn begins_on(&self, lane: LaneId) -> Nanos {
        let lane = self.lane(lane).filter(|lane| !lane.yields);
        let last = lane.and_then(|lane| self.batches.at(*lane.holding.last()?));
        let last = last.filter(|batch| !batch.is_given_back());
        last.map_or(self.now, |batch| batch.expected_end.max(self.now))
    }

    /// Rows of other classes and tenants that may join a batch of this queue.
    pub(super) fn company(&self, queue: &Queue, model: &Model) -> u32 {
        if model.queues.len() < 2 {
            return 0;
        }
        let alike = |other: &&Queue| {
            other.key != queue.key
                && (other.key.shape, other.key.pool) == (queue.key.shape, queue.key.pool)
                && self.may_share_batch(&queue.key, &other.key)
        };
        let others = model.queues.iter().filter_map(|(_, slot)| self.queues.get(*slot));
        others.filter(alike).map(|other| other.rows).fold(0, u32::saturating_add)
    }

    pub(super) fn urgency(&self, queue: &Queue, head: &Waiting, proposal: &Proposal) -> Urgency {
        let oldest = queue.oldest().and_then(|slot| self.requests.at(slot));
        let (class, priority) =
            oldest.map_or((queue.key.class, Priority::Deadline), |oldest| self.priority(oldest));
        let wait_until = head.arrived.after(self.config.best_effort_max_wait);
        let rank = if queue.key.timing == Timing::Deadline { proposal.rank } else { wait_until.0 };
        (class, priority, rank, head.sequence)
    }

    /// Class and priority of a request. A queue has those of the request that has waited longest.
    pub(super) fn priority(&self, request: &Request) -> (Class, Priority) {
        if request.borrowed || self.is_over_quota(request.tenant) {
            return (request.class.max(Class::LAST), Priority::OverQuota);
        }
        let waited = self.now.since(request.arrived);
        if waited >= self.config.starvation {
            return (Class::new(0), Priority::Overdue);
        }
        let priority = match (request.timing(), self.shares.over(self.now, request.tenant)) {
            (Timing::BestEffort, _) if waited >= self.config.best_effort_max_wait => Priority::Overdue,
            (Timing::Deadline, false) => Priority::Deadline,
            (Timing::Deadline, true) => Priority::DeadlineOverShare,
            (Timing::BestEffort, false) => Priority::BestEffort,
            (Timing::BestEffort, true) => Priority::BestEffortOverShare,
            (Timing::Delayed, _) => Priority::Delayed,
        };
        (request.class, priority)
    }

    /// Time at which waiting makes a queue more urgent.
    fn promotion(&self, queue: &Queue, head: &Waiting) -> Nanos {
        let promotion = match queue.key.timing {
            Timing::BestEffort => Some(head.arrived.after(self.config.best_effort_max_wait)),
            Timing::Deadline | Timing::Delayed => None,
        };
        let starved = queue.oldest();
        let starved = starved.and_then(|slot| self.requests.at(slot));
        let starved = starved.map(|oldest| oldest.arrived.after(self.config.starvation));
        let ahead = [promotion, starved].into_iter().flatten().filter(|&at| at > self.now);
        ahead.min().unwrap_or(Nanos::NEVER)
    }

    /// Drops requests from the head of a queue. Returns when the request that is then the head is to be dropped; `NEVER`
    /// for an empty queue.
    fn drop_hopeless(&mut self, slot: u32, effects: &mut Effects) -> Nanos {
        while let Some(head) = self.queues.get(slot).and_then(Queue::head).map(|head| head.slot) {
            let Some(request) = expected!(self.requests.at(head), "router.queue_with_unknown_request") else {
                return Nanos::NEVER;
            };
            let (id, model_id, deadline) = (request.id, request.model, request.deadline);
            let (passed, delays) = (deadline <= self.now, request.timeout_action == TimeoutAction::Delay);
            if passed && delays {
                self.delay(head);
                continue;
            }
            if passed {
                self.drop_head(id, slot, (Outcome::Expired, Reason::DeadlinePassed), effects);
                continue;
            }
            let queue = expected!(self.queues.get(slot), "router.changed_queue_unknown");
            let Some(pool) = queue.map(|queue| queue.key.pool) else { return Nanos::NEVER };
            let from = self.model(model_id).map(|model| self.drop_time(model, pool, request));
            let from = from.unwrap_or(Nanos::NEVER);
            let late = from <= self.now;
            if late && delays {
                self.delay(head);
                continue;
            }
            if !late {
                return from;
            }
            if self.spare_as_probe(head, model_id) {
                return deadline;
            }
            self.drop_head(id, slot, (Outcome::Refused, Reason::DeadlineUnmeetable), effects);
        }
        Nanos::NEVER
    }

    /// Drops a request that cannot meet its deadline. If the quota of its tenant kept it from starting, that is the reason.
    fn drop_head(&mut self, id: RequestId, queue: u32, end: (Outcome, Reason), effects: &mut Effects) {
        let held = self.queues.get(queue).is_some_and(|queue| self.held_until(queue).is_some());
        let (outcome, reason) = if held { (Outcome::Refused, Reason::Quota) } else { end };
        self.unqueue(id.slot());
        self.finish(id, outcome, reason, effects);
    }

    /// Takes the deadline from a queued request and puts it behind the others of its class.
    pub(super) fn delay(&mut self, slot: u32) {
        self.unqueue(slot);
        let Some(request) = expected!(self.requests.at_mut(slot), "router.queued_request_unknown") else {
            return;
        };
        (request.deadline, request.wanted_by, request.delayed) = (Nanos::NEVER, Nanos::NEVER, true);
        let (model, behind) = (request.model, std::mem::take(&mut request.queued_behind));
        if let Some(model) =
            self.model_mut(model).filter(|model| behind && model.policy.forecasting().is_some())
        {
            model.wait_forecast.dropped();
        }
        self.enqueue(slot);
    }

    fn spare_as_probe(&mut self, slot: u32, model: ModelId) -> bool {
        if self.free_lane_for(model).is_none() {
            return false;
        }
        let Some(model) = expected!(self.model_mut(model), "router.queue_of_unknown_model") else {
            return false;
        };
        let chosen = model.doubted.is_multiple_of(PROBE_EVERY);
        model.doubted = model.doubted.wrapping_add(1);
        if let Some(request) = self.requests.at_mut(slot).filter(|_| chosen) {
            request.probe = true;
        }
        chosen
    }

    fn close_queue(&mut self, slot: u32, effects: &mut Effects) {
        self.file_ready(slot, None);
        self.queues.set_timer(slot, Nanos::NEVER);
        let key = self.queues.get(slot).map(|queue| (queue.key.model, queue.key.pool));
        let Some((model_id, pool)) = key else { return };
        self.wants_no_resources(slot, model_id);
        // A queue may be listed twice for one event. Only the first evaluation finds it open, and its model may be
        // removed by the second.
        let Some(model) = self.model_mut(model_id) else { return };
        if let Some(position) = model.queues.iter().position(|(_, open)| *open == slot) {
            model.queues.swap_remove(position);
            self.queues.close(slot);
            self.recount_pool(pool);
            self.retire_if_done(model_id, effects);
        }
    }

    pub(super) fn note_deferred(&mut self, slot: u32, pool: u32) {
        let Some(pool) = self.pools.get_mut(pool).filter(|pool| !pool.free.is_empty()) else { return };
        if let Some(queue) = self.queues.get_mut(slot).filter(|queue| !queue.deferred) {
            queue.deferred = true;
            pool.deferred.push(slot);
        }
    }

    /// Evaluates deferred queues again, because another lane became free.
    pub(super) fn ask_deferred(&mut self, pool: u32) {
        for _ in 0..DEFERRED_ASKED {
            let Some(slot) = self.pools.get_mut(pool).and_then(|pool| pool.deferred.pop()) else { return };
            if let Some(queue) = self.queues.get_mut(slot) {
                queue.deferred = false;
            }
            self.queues.note(slot);
        }
    }

    pub(super) fn file_ready(&mut self, slot: u32, urgency: Option<Urgency>) {
        let Some(queue) = expected!(self.queues.get_mut(slot), "router.filed_queue_unknown") else { return };
        let before = std::mem::replace(&mut queue.ready, urgency);
        if before != urgency {
            let pool = queue.key.pool;
            self.pools.file(pool, slot, urgency);
        }
    }
}
