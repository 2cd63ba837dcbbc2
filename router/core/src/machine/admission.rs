//! Admission and cancellation of requests.

use invariant::expected;

use crate::batch::DropMode;
use crate::event::{Arrival, Effect, Effects, Outcome, Reason, TimeoutAction};
use crate::forecast::Forecast;
use crate::machine::Router;
use crate::model::Model;
use crate::pipeline::Times;
use crate::pool::Pool;
use crate::queue::{Queue, QueueKey};
use crate::records::Decided;
use crate::request::{NIL, Request, Stage};
use crate::tenant_accounts::Standing;
use crate::{Class, FamilyId, Nanos, RequestId, Tenant};

/// This many batches of the policy's usual size may always wait, whatever their forecast. With fewer to choose from,
/// the policy would form smaller batches.
const SOON: f64 = 3.0;
/// A model is overloaded if its offered load exceeds the most that its lanes can answer. Overload counts fully from
/// this much above.
const OVERLOAD: f64 = 0.1;

impl Router {
    /// `is_new`: it counts against the request rate of its tenant. `family`: of which it got a variant.
    pub(super) fn arrive(
        &mut self,
        arrival: &Arrival,
        is_new: bool,
        family: Option<FamilyId>,
        effects: &mut Effects,
    ) {
        let now = self.now;
        let mut standing = self.tenants.standing(now, arrival.tenant, is_new);
        let times = self.times_of(arrival);
        if arrival.class.is_best_effort() && standing == Standing::Within {
            (standing, self.has_best_effort) = (Standing::Borrows, true);
        }
        // Traffic that lanes must not be kept for is not counted as demand.
        if let Some(model) = self.model_mut(arrival.model).filter(|_| standing == Standing::Within) {
            model.rate.count(now, arrival.rows);
            model.row_bytes = arrival.bytes / u64::from(arrival.rows.max(1));
            if let Some(times) = times {
                model.slo = times.due.since(now);
                model.objective = times.objective;
            }
        }
        let Err((reason, forecast)) = self.admit(arrival, times, (standing, is_new), family) else { return };
        if let Some(family) = family.filter(|_| reason == Reason::DeadlineUnmeetable) {
            self.was_late(family, arrival.model, arrival.deadline.map_or(Nanos::NEVER, |due| due.since(now)));
        }
        let outcome = if reason == Reason::DeadlinePassed { Outcome::Expired } else { Outcome::Refused };
        let dropped = matches!(reason, Reason::DeadlineUnmeetable | Reason::QueueFull | Reason::MemoryFull);
        if dropped && standing == Standing::Within {
            self.shares.suffered(now, arrival.tenant);
        }
        self.records.note(
            now,
            Decided::End {
                request: arrival.request,
                model: arrival.model,
                batch: None,
                arrived: now,
                deadline: arrival.deadline.unwrap_or(Nanos::NEVER),
                outcome,
                reason,
                forecast,
            },
        );
        effects.push(Effect::Finish { request: arrival.request, outcome, reason });
    }

    fn admit(
        &mut self,
        arrival: &Arrival,
        times: Option<Times>,
        (standing, is_new): (Standing, bool),
        family: Option<FamilyId>,
    ) -> Result<(), (Reason, Forecast)> {
        self.check_bounds(arrival, standing).map_err(|reason| (reason, Forecast::default()))?;
        let borrowed = standing == Standing::Borrows;
        let mut deadline = times.map_or(Nanos::NEVER, |times| times.latest);
        let mut wanted_by = match deadline {
            Nanos::NEVER => deadline,
            deadline => deadline.before(self.config.margin.min(Nanos(deadline.since(self.now).0 / 8))),
        };
        let (forecast, mut queued_behind) = self.forecast(arrival, wanted_by, borrowed);
        let passed = arrival.deadline.is_some_and(|deadline| deadline <= self.now);
        let late = deadline <= self.now || forecast.end > if queued_behind { wanted_by } else { deadline };
        if late && arrival.timeout_action == TimeoutAction::Reject {
            return Err((if passed { Reason::DeadlinePassed } else { Reason::DeadlineUnmeetable }, forecast));
        }
        if late {
            (deadline, wanted_by, queued_behind) = (Nanos::NEVER, Nanos::NEVER, false);
        }
        self.shares.know(arrival.tenant);
        let sequence = self.requests.next_sequence();
        let request = Request {
            id: arrival.request,
            model: arrival.model,
            class: arrival.class,
            tenant: arrival.tenant,
            shape: arrival.shape,
            rows: arrival.rows,
            bytes: arrival.bytes,
            arrived: self.now,
            deadline,
            objective: times.map_or(Nanos::NEVER, |times| times.objective),
            timeout_action: arrival.timeout_action,
            position: arrival.pipeline,
            family,
            delayed: late,
            wanted_by,
            sequence,
            alone: false,
            lost: false,
            probe: false,
            forecast,
            queued_behind: queued_behind && !borrowed,
            borrowed,
            counted_time: Nanos::ZERO,
            stage: Stage::Queued,
            batch: None,
            returned: 0,
            pauses_until: Nanos::ZERO,
            queue: NIL,
            previous: NIL,
            next: NIL,
        };
        let slot = request.id.slot();
        if !self.requests.insert(request) {
            return Err((Reason::IdInUse, forecast));
        }
        self.enqueue(slot);
        let now = self.now;
        if let Some(model) = self.model_mut(arrival.model) {
            model.count_unfinished(now);
        }
        if borrowed {
            return Ok(());
        }
        if is_new {
            self.tenants.admitted(now, arrival.tenant);
        }
        self.note_slack(slot);
        Ok(())
    }

    fn check_bounds(&self, arrival: &Arrival, standing: Standing) -> Result<(), Reason> {
        let slot = arrival.request.slot();
        if slot >= self.config.max_requests {
            return Err(Reason::QueueFull);
        }
        if self.requests.taken(arrival.request) {
            return Err(Reason::IdInUse);
        }
        if self.drain_until.is_some() {
            return Err(Reason::Draining);
        }
        let model = self.model(arrival.model).filter(|model| !model.retiring).ok_or(Reason::UnknownModel)?;
        if arrival.rows == 0 || arrival.rows > model.max_batch {
            return Err(Reason::BatchTooLarge);
        }
        if self.pools.get(model.pool).is_none_or(|pool| pool.up.is_empty()) {
            return Err(Reason::NoLane);
        }
        let lacks_space = standing == Standing::Borrows && !self.has_space_to_borrow(arrival);
        if lacks_space && arrival.class.is_best_effort() {
            return Err(Reason::MemoryFull);
        }
        if lacks_space || standing == Standing::Refused {
            return Err(Reason::Quota);
        }
        let borrowed = standing == Standing::Borrows;
        if self.queued_by(model, arrival.class, arrival.tenant, borrowed) >= model.limit_of(arrival.class) {
            return Err(Reason::QueueFull);
        }
        if self.queues.bytes().saturating_add(arrival.bytes) > self.config.queued_bytes_limit {
            return Err(Reason::MemoryFull);
        }
        Ok(())
    }

    /// Requests of a tenant that wait in a class, borrowed ones or the others.
    pub(super) fn queued_by(&self, model: &Model, class: Class, tenant: Tenant, borrowed: bool) -> usize {
        let alike = (class, tenant, borrowed);
        let theirs = model.queues.iter().filter(|(key, _)| (key.class, key.tenant, key.borrowed) == alike);
        theirs.filter_map(|(_, slot)| self.queues.get(*slot)).map(Queue::len).sum()
    }

    /// The earliest time at which this request can be answered: on the lane that is free first, after the requests before
    /// it in its queue ran at the best measured rate. Other queues are left out, so a request that is rejected here could
    /// not have been answered. Zero for policies that drop only expired requests, and while a lane is free.
    ///
    /// The flag says whether the model is overloaded and enough requests wait before this one to determine its wait.
    /// Only then is the learned factor between the shortest and the real wait applied. In that
    /// state some request must be rejected, so caution costs no answer. In other states it would: the queue after a stall
    /// or a burst may still drain in time.
    fn forecast(&self, arrival: &Arrival, wanted_by: Nanos, borrowed: bool) -> (Forecast, bool) {
        let Some(model) = expected!(self.model(arrival.model), "router.admitted_model_unknown") else {
            return (Forecast::default(), false);
        };
        let Some(pool) = expected!(self.pools.get(model.pool), "router.model_of_unknown_pool") else {
            return (Forecast::default(), false);
        };
        let lazy = model.policy.drop_mode() == DropMode::Lazy;
        if wanted_by == Nanos::NEVER || lazy || !pool.free.is_empty() {
            return (Forecast::default(), false);
        }
        let row_bytes = arrival.bytes / u64::from(arrival.rows.max(1));
        let start = pool.ends.first().map_or(self.now, |end| end.at.max(self.now));
        let alike = |key: &QueueKey| {
            (key.class, key.tenant, key.shape, key.borrowed)
                == (arrival.class, arrival.tenant, arrival.shape, borrowed)
        };
        let ahead = model.queues.iter().filter(|(key, _)| alike(key)).map(|(_, slot)| {
            let Some(queue) = expected!(self.queues.get(*slot), "router.model_with_unknown_queue") else {
                return 0;
            };
            let before = queue.waiting.position((wanted_by, u64::MAX)) as u64;
            u64::from(queue.rows) * before / queue.len().max(1) as u64
        });
        let ahead = ahead.fold(0_u64, u64::saturating_add);
        let (row_time, lanes) = (row_time_of(model, pool, row_bytes), pool.up.len().max(1));
        let at_best = Nanos(row_time.saturating_mul(ahead) / u64::from(lanes));
        let many =
            model.policy.forecasting().is_some_and(|policy| ahead as f64 > SOON * policy.target_batch());
        let overload = if many { self.overload(model, row_time, lanes) } else { 0.0 };
        let behind = overload > 0.0;
        let wait = if behind { model.wait_forecast.of(at_best, overload) } else { at_best };
        let begins = start.after(wait);
        let end = begins.after(least_time(model, pool, arrival.rows, row_bytes));
        (Forecast { rows_before: ahead, lanes, wait: begins.since(self.now), end }, behind)
    }

    /// Whether a model's traffic alone is more than the lanes of a pool answer, so that admission rejects part of it.
    pub(super) fn is_overloaded(&self, model: &Model, pool: &Pool, row_bytes: u64) -> bool {
        let (row_time, lanes) = (row_time_of(model, pool, row_bytes), pool.up.len().max(1));
        self.overload(model, row_time, lanes) > 0.0
    }

    /// How far the offered load exceeds what `lanes` lanes answer at `row_time` nanoseconds a row, from 0 (not
    /// overloaded) to 1.
    fn overload(&self, model: &Model, row_time: u64, lanes: u32) -> f64 {
        let load = model.rate.per_second(self.now) * row_time as f64 / 1e9 / f64::from(lanes);
        ((load - 1.0) / OVERLOAD).clamp(0.0, 1.0)
    }

    /// Puts a request that is in no queue into the queue of its key.
    pub(super) fn enqueue(&mut self, slot: u32) {
        let Some(request) = expected!(self.requests.at(slot), "router.queued_request_unknown") else {
            return;
        };
        let (model, class, tenant) = (request.model, request.class, request.tenant);
        let (shape, timing, borrowed) = (request.shape, request.timing(), request.borrowed);
        let bound = self.model_mut(model).and_then(|model| model.policy.planning_mut()?.bind());
        let bound = bound.and_then(|lane| self.pool_of_lane(lane, model));
        let pool = bound.or_else(|| self.model(model).map(|model| model.pool));
        let Some(pool) = expected!(pool, "router.queued_model_unknown") else { return };
        let key = QueueKey { model, class, tenant, shape, timing, borrowed, pool };
        let open = self.model(model).and_then(|model| model.queue(key));
        let queue_slot = open.unwrap_or_else(|| self.queues.open(key));
        if let Some(model) = self.model_mut(model) {
            if open.is_none() {
                model.queues.push((key, queue_slot));
            }
            if let Some(count) = model.queued_mut(class) {
                *count += 1;
            }
        }
        if let Some(request) = self.requests.at_mut(slot) {
            request.queue = queue_slot;
            request.stage = Stage::Queued;
        }
        self.queues.push(queue_slot, slot, &mut self.requests);
        self.reserve(slot);
        self.queues.note(queue_slot);
    }

    pub(super) fn cancel(&mut self, id: RequestId, effects: &mut Effects) {
        // The answer may have been on its way when the client left.
        let Some(request) = self.requests.get(id) else { return };
        let model = request.model;
        self.settle_cancelled(id.slot());
        self.unqueue(id.slot());
        self.finish(id, Outcome::Cancelled, Reason::ClientDisconnected, effects);
        self.retire_if_done(model, effects);
    }
}

impl Router {
    /// Time from which no lane of the pool could answer a request by its deadline. It is dropped then.
    pub(super) fn drop_time(&self, model: &Model, pool: u32, request: &Request) -> Nanos {
        if request.deadline == Nanos::NEVER || request.probe || model.policy.drop_mode() == DropMode::Lazy {
            return request.deadline;
        }
        let row_bytes = request.bytes / u64::from(request.rows.max(1));
        let pool = self.pools.get(pool);
        let time = pool.map_or(Nanos::ZERO, |pool| least_time(model, pool, request.rows, row_bytes));
        if time > request.deadline {
            return Nanos::ZERO;
        }
        request.deadline.before(time).after(Nanos(1)).min(request.deadline)
    }
}

/// Time of a batch on the fastest lane class of a pool, rarely exceeded.
pub(super) fn least_time(model: &Model, pool: &Pool, rows: u32, row_bytes: u64) -> Nanos {
    let time = |lane_class| model.costs.on(lane_class).cautious(rows, row_bytes);
    match pool.only_lane_class() {
        Some(lane_class) => time(lane_class),
        None => pool.lane_classes.iter().map(|&(lane_class, _)| time(lane_class)).min().unwrap_or_default(),
    }
}

/// Nanoseconds a row at the best measured batch size. For lanes of several classes it is the value with which the same
/// number of equal lanes would have the same throughput.
pub(super) fn row_time_of(model: &Model, pool: &Pool, row_bytes: u64) -> u64 {
    let time = |lane_class| model.costs.on(lane_class).best_row_time(row_bytes).0;
    if let Some(lane_class) = pool.only_lane_class() {
        return time(lane_class);
    }
    let speeds =
        pool.lane_classes.iter().map(|&(lane_class, lanes)| (f64::from(lanes), time(lane_class) as f64));
    let (lanes, speed) =
        speeds.fold((0.0, 0.0), |(lanes, speed), (more, time)| (lanes + more, speed + more / time));
    // An unknown time on some lane class (0) hides the others, so that a request is never rejected for lack of data.
    if speed.is_finite() && speed > 0.0 { (lanes / speed) as u64 } else { 0 }
}
