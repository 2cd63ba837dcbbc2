//! The state machine. Each event takes three steps: apply the event, evaluate the queues that are due, and dispatch
//! batches to free lanes.

mod admission;
mod backlog;
mod dispatch;
mod evaluate;
mod families;
mod invariants;
mod lane_classes;
mod lifecycle;
mod pipelines;
mod planning;
mod rate_limit;
mod reports;
mod snapshot;
mod switch;
mod tenant_quotas;
mod time_quotas;
mod time_slices;

use std::collections::BTreeMap;

use invariant::expected;

use crate::batch::{NextPlan, Silence};
use crate::error::ConfigError;
use crate::event::{Effect, Effects, Event, Outcome, Reason};
use crate::family::Family;
use crate::lane::{Batches, Lane, LaneMode};
use crate::lanes::Lanes;
use crate::model::Model;
use crate::models::Models;
use crate::pipeline::Pipeline;
use crate::pool::Pools;
use crate::protection::Protection;
use crate::queue::Queues;
use crate::records::{Decided, Explanation, Record, Records};
use crate::request::{Requests, Stage};
use crate::resources::Resources;
use crate::tenant_accounts::TenantAccounts;
use crate::tenants::Shares;
use crate::time_quota::Tokens;
use crate::{FamilyId, LaneId, LaneState, ModelId, Nanos, PipelineId, RequestId, RouterConfig};

pub use backlog::ModelBacklog;
pub use invariants::{Checker, Violation};
pub use snapshot::{FamilySnapshot, LaneSnapshot, ModelSnapshot, Snapshot};

/// All requests, queues, lanes and batches of one router.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    config: RouterConfig,
    now: Nanos,
    requests: Requests,
    queues: Queues,
    models: Models,
    lanes: Lanes,
    tokens: Tokens,
    pools: Pools,
    batches: Batches,
    shares: Shares,
    tenants: TenantAccounts,
    records: Records,
    resources: Resources,
    pipelines: BTreeMap<PipelineId, Pipeline>,
    families: BTreeMap<FamilyId, Family>,
    /// `None`: best-effort work is not held back.
    protection: Option<Protection>,
    drain_until: Option<Nanos>,
    next_plan: NextPlan,
    silence: Silence,
    /// Whether a request of best effort ever came. How long others can wait is noted from then on.
    has_best_effort: bool,
    /// Slots of the requests of the batch that is being formed.
    forming: Vec<u32>,
}

impl Router {
    /// An empty router at time zero.
    pub fn new(config: RouterConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            shares: Shares::new(config.tenants.weights()),
            tenants: TenantAccounts::new(&config.tenants),
            records: Records::new(config.records),
            resources: Resources::new(&config.resources),
            protection: config.protect.map(Protection::new),
            config,
            now: Nanos::ZERO,
            requests: Requests::default(),
            queues: Queues::default(),
            models: Models::default(),
            lanes: Lanes::default(),
            tokens: Tokens::default(),
            pools: Pools::default(),
            batches: Batches::default(),
            pipelines: BTreeMap::new(),
            families: BTreeMap::new(),
            drain_until: None,
            next_plan: NextPlan::default(),
            has_best_effort: false,
            silence: Silence::default(),
            forming: Vec::new(),
        })
    }

    /// Processes one event. If `now` is before the time of an earlier event, the earlier time is used.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>, effects: &mut Effects) {
        self.now = self.now.max(now);
        if matches!(
            event,
            Event::Arrive(_)
                | Event::ArriveAtVariant(..)
                | Event::ArriveTogether(_)
                | Event::StageDone(_)
                | Event::Tick
        ) {
            self.forget_silent();
            self.plan_if_due();
        }
        self.refresh_due_quotas();
        if let Some(protection) = &mut self.protection {
            protection.advance(self.now);
        }
        match event {
            Event::Arrive(arrival) => self.arrive(&arrival, true, None, effects),
            Event::ArriveAtVariant(arrival, family) => self.arrive(&arrival, true, Some(family), effects),
            Event::ArriveTogether(arrivals) => {
                arrivals.iter().for_each(|arrival| self.arrive(arrival, true, None, effects))
            }
            Event::StageDone(arrivals) => {
                arrivals.iter().for_each(|arrival| self.arrive(arrival, false, None, effects))
            }
            Event::Cancel(request) => self.cancel(request, effects),
            Event::BatchDone(report) => self.batch_done(report, effects),
            Event::BatchReturned { batch, .. } => self.batch_returned(batch, effects),
            Event::ModelUp(spec) => self.model_up(spec),
            Event::ModelChanged(spec) => self.change_model(spec),
            Event::ModelDown(model) => self.model_down(model, effects),
            Event::PipelineUp(spec) => self.pipeline_up(spec),
            Event::PipelineDown(pipeline) => self.pipeline_down(pipeline),
            Event::FamilyUp(spec) => self.family_up(spec),
            Event::FamilyDown(family) => self.family_down(family),
            Event::TenantsChanged(table) => self.change_tenants(table),
            Event::LaneUp(spec) => self.lane_up(&spec),
            Event::LaneDown(lane) => self.lane_down(lane, Self::fail_batch, effects),
            Event::LaneFailed(lane) => self.lane_down(lane, Self::batch_lost, effects),
            Event::Switch(switch) => self.switch(switch, effects),
            Event::Drain { until } => self.drain_until = Some(until),
            Event::Tick => {}
        }
        self.evaluate_due(effects);
        self.give_work(effects);
    }

    /// Time by which `Event::Tick` must come if no other event does.
    pub fn next_wake(&self) -> Option<Nanos> {
        let (timer, lane) = (self.queues.next_timer(), self.lanes.next_timer());
        let drain = self.drain_until.filter(|_| self.queues.iter().next().is_some());
        [timer, lane, drain].into_iter().flatten().min()
    }

    /// Whether a model is loaded or retiring.
    pub fn knows(&self, model: ModelId) -> bool {
        self.model(model).is_some()
    }

    /// The state of a lane; `None` if it is not known.
    pub fn lane_state(&self, id: LaneId) -> Option<LaneState> {
        let lane = self.lane(id)?;
        Some(match lane.mode {
            LaneMode::Active if self.lease_end(lane).is_some() => LaneState::Waiting,
            LaneMode::Active => LaneState::Active,
            LaneMode::Draining => LaneState::Draining,
            LaneMode::Idle => LaneState::Idle,
        })
    }

    /// Requests admitted and not yet finished.
    pub fn unfinished(&self) -> usize {
        self.requests.len()
    }

    /// Time of the last event.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The last decisions, oldest first: as many starts of batches as [`RouterConfig::records`], as many requests that were
    /// answered in time, and as many others.
    pub fn records(&self) -> Vec<Record> {
        self.records.all()
    }

    /// Returns the decisions about a request that ended at `ended`, or `None` if newer ones have replaced them.
    pub fn explain(&self, request: RequestId, ended: Nanos) -> Option<Explanation> {
        self.records.explain(request, ended)
    }

    fn model(&self, id: ModelId) -> Option<&Model> {
        self.models.get(id)
    }

    fn model_mut(&mut self, id: ModelId) -> Option<&mut Model> {
        self.models.get_mut(id)
    }

    fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(id)
    }

    fn lane_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(id)
    }

    /// The free lane of the smallest id that runs a model.
    fn free_lane_for(&self, model: ModelId) -> Option<LaneId> {
        self.pools.get(self.model(model)?.pool)?.free.first()
    }

    /// Removes a request that is in no queue and reports how it ended.
    fn finish(&mut self, id: RequestId, outcome: Outcome, reason: Reason, effects: &mut Effects) {
        // A batch that ends still lists the members that were cancelled while it ran.
        let Some(request) = self.requests.get(id) else { return };
        let (model, batch, arrived, deadline) =
            (request.model, request.batch, request.arrived, request.deadline);
        let (tenant, behind, borrowed) = (request.tenant, request.queued_behind, request.borrowed);
        let (forecast, best_effort) = (request.forecast, request.class.is_best_effort());
        let (position, family) = (request.position, request.family);
        if let Some(protection) =
            self.protection.as_mut().filter(|_| outcome == Outcome::Done && !best_effort)
        {
            protection.answered(self.now, model, arrived);
        }
        let decided =
            Decided::End { request: id, model, batch, arrived, deadline, outcome, reason, forecast };
        self.records.note(self.now, decided);
        let dropped = matches!(reason, Reason::DeadlineUnmeetable | Reason::DeadlinePassed | Reason::Shed);
        if dropped && !borrowed && !self.is_over_quota(tenant) {
            self.shares.suffered(self.now, tenant);
        }
        if let Some(model) =
            self.model_mut(model).filter(|model| behind && model.policy.forecasting().is_some())
        {
            match outcome {
                Outcome::Done => model.wait_forecast.answered(),
                _ if dropped => model.wait_forecast.dropped(),
                _ => {}
            }
        }
        if let Some(position) = position.filter(|_| outcome == Outcome::Done || dropped) {
            self.stage_took(&position, self.now.since(arrived), dropped);
        }
        if let Some(family) = family.filter(|_| dropped) {
            self.was_late(family, model, deadline.since(arrived));
        }
        self.requests.remove(id.slot());
        effects.push(Effect::Finish { request: id, outcome, reason });
    }

    /// Takes a queued request out of its queue and out of all counts.
    fn unqueue(&mut self, slot: u32) {
        let Some(request) = expected!(self.requests.at(slot), "router.queued_request_unknown") else {
            return;
        };
        if request.stage != Stage::Queued {
            return;
        }
        let (queue_slot, model, class) = (request.queue, request.model, request.class);
        self.queues.take(queue_slot, slot, &mut self.requests);
        self.release(slot);
        if let Some(count) = self.model_mut(model).and_then(|model| model.queued_mut(class)) {
            *count = count.saturating_sub(1);
        }
        self.queues.note(queue_slot);
    }
}
