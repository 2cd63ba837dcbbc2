//! The event loop of the simulator. It feeds events to the router in order of time and carries out its effects.
//!
//! Events at the same moment have a fixed order: failures and recoveries of lanes, batches that end, steps of the
//! control loop, arrivals, ticks of the control loop, and the router's timer. A lane that becomes free at a moment can
//! therefore run a request that arrives at that moment.

mod control;
mod families;
mod pipelines;

use std::collections::{BTreeMap, VecDeque};

use invariant::Violation;
use router_core::{
    Arrival, BatchId, BatchReport, Checker, Class, Effect, Effects, Event, FamilyId, Incoming, LaneClass,
    LaneId, LaneSpec, ModelId, ModelLanes, ModelMove, ModelSpec, Nanos, Outcome, Router, ShapeKey, Switch,
    Tenant,
};
use workload::{Arrivals, ExecutionNoise, Extent, LaneChange, ObjectiveSplit, Offered, Pipeline, Workload};

use crate::digest::Digest;
use crate::error::{Breach, Broken, SimError};
use crate::figures::Figures;
use crate::inflight::{InFlight, Part, Request};
use crate::lanes::{Held, Lanes, lanes_of};
use crate::partition::Partitioned;
use crate::report::{Report, SpanEnd, Stopped};
use crate::rollouts::Rollouts;
use crate::setup::{Setup, scaled};
use crate::splits;
use crate::units::{SECOND, seconds};
use crate::watch::{Trace, Watch};
use families::Families;
use pipelines::{PartEnd, Pipelines};

/// Events between two calls of the progress function.
const PROGRESS_EVERY: u64 = 1 << 16;

/// Events at one moment without an arrival. More are a breach: the core and its caller would loop forever.
const SPIN_MAX: u64 = 1 << 20;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Share of the traffic that has been offered, 0 to 1; an estimate.
    pub share: f64,
    /// Seconds of virtual time.
    pub virtual_seconds: f64,
    /// Requests offered.
    pub requests: u64,
    /// Events that the router has processed.
    pub events: u64,
}

/// The state of a run: a workload, a router and its lanes at a moment of virtual time.
#[derive(Debug)]
pub struct Simulation {
    pub(crate) workload: Workload,
    pub(crate) setup: Setup,
    pub(crate) figures: Figures,
    pub(crate) digest: Digest,
    pub(crate) requests: InFlight,
    /// Virtual time, in nanoseconds.
    pub(crate) now: u64,
    pub(crate) events: u64,
    pub(crate) stopped: Option<Stopped>,
    /// The control loop. `None` if the workload has no devices.
    pub(crate) partition: Option<Box<Partitioned>>,
    pub(crate) rollouts: Rollouts,
    pipelines: Pipelines,
    families: Families,
    router: Router,
    /// Whether the router counts the lane time of tenants.
    tenants_are_counted: bool,
    checker: Checker,
    effects: Effects,
    arrivals: Arrivals,
    upcoming: Option<Offered>,
    offered: u64,
    noise: ExecutionNoise,
    lanes: Lanes,
    /// Number of lane failures and recoveries that have happened.
    changes: usize,
    /// Batches that the router preempted, in the order of its effects.
    preemptions: VecDeque<(LaneId, BatchId)>,
    /// Events since virtual time last advanced.
    spins: u64,
    /// Time of the router's last event, `None` before the first. The control loop may have done something since.
    router_now: Option<u64>,
    watch: Option<Watch>,
    trace: Option<Trace>,
    /// States that cannot happen and that this process had reached before the run.
    violations_before: Vec<Violation>,
}

/// Sources of the next event, in their order at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Change,
    End,
    /// A step of the control loop is done.
    Step,
    /// A roll-out begins, or its bake time is over.
    Rollout,
    Arrival,
    /// A tick of the control loop.
    Look,
    Wake,
}

impl Simulation {
    /// Creates a simulation at time zero. Every model is loaded and every lane is up; with devices, a first plan is in
    /// force. Ways to divide the objective of pipelines with `split = "plan"` are simulated first, with other seeds.
    ///
    /// # Errors
    /// If the setup cannot work, if the workload does not say how long batches of a model take, or if its devices and
    /// profiles allow no plan.
    pub fn new(workload: &Workload, setup: &Setup) -> Result<Self, SimError> {
        let is_planned = |pipeline: &Pipeline| pipeline.split == ObjectiveSplit::Plan;
        let planned = workload.pipelines().filter(|(.., pipeline)| is_planned(pipeline));
        let planned: Vec<u32> = planned.map(|(number, ..)| number).collect();
        if planned.is_empty() {
            return Self::ready(workload, setup, planned);
        }
        let trial = Setup { check: false, trace: false, ..setup.clone() };
        let simulated = |tried: &Workload| Ok(Self::new(tried, &trial)?.run(&mut |_| {})?.attainment);
        Self::ready(&splits::choose(workload, &planned, simulated)?, setup, planned)
    }

    /// `planned`: pipelines of which the division was chosen.
    fn ready(workload: &Workload, setup: &Setup, planned: Vec<u32>) -> Result<Self, SimError> {
        let partition = Partitioned::new(workload, setup)?.map(Box::new);
        let known = partition
            .as_ref()
            .map(|one| (one.open_gpulets.lanes_max(), one.control_inputs.models.as_slice()));
        let ordinary = known.map_or(workload.lanes.count, |(lanes, _)| lanes);
        let lanes = if workload.lanes.idle_priority { ordinary.saturating_mul(2) } else { ordinary };
        let rollouts = Rollouts::new(workload);
        let fleet = workload.fleet.as_ref().filter(|fleet| known.is_none() && fleet.is_unequal());
        let mut moves: Vec<ModelMove> = Vec::new();
        let specs: Vec<ModelSpec> = match known {
            Some((_, models)) => setup.specs_on_gpulets(models),
            None => {
                let own = workload.models.iter().filter(|model| model.is_single());
                let own = own.map(|model| (model, 1.0));
                let canaries = rollouts.canaries().iter().filter_map(|&number| {
                    Some((workload.models.get(number as usize)?, rollouts.time_factor(number)))
                });
                let specs = (0..).zip(own.chain(canaries)).map(|(id, (model, time))| {
                    let id = ModelId(id);
                    let first = fleet.and_then(|fleet| fleet.types.first());
                    let first = first.map_or(1.0, |first| first.speed_of(&model.name));
                    if let Some(fleet) = fleet {
                        let times = setup.other_times(id, (model, time), fleet)?;
                        moves.push(ModelMove { model: id, lanes: ModelLanes::All, times });
                    }
                    let lanes = lanes_of(workload, model);
                    Ok(ModelSpec { lanes, ..setup.spec(id, model, time / first)? })
                });
                specs.collect::<Result<_, SimError>>()?
            }
        };
        let divided = partition.as_ref().map(|one| &one.control_inputs.divided);
        let pipelines = Pipelines::new(workload, &specs, divided.unwrap_or(&BTreeMap::new()), planned)?;
        let largest = specs.iter().map(|spec| spec.max_batch).max().unwrap_or(0);
        let router = Router::new(setup.router(workload, lanes)?)?;
        let tenants_are_counted = router.tenant_uses().next().is_some();
        let (to, expected_end) = match workload.extent {
            Extent::Time(time) => (Some(time), time),
            Extent::Requests(count) => {
                let rate = workload.mean_rate().max(f64::MIN_POSITIVE);
                (None, (count as f64 / rate * SECOND as f64) as u64)
            }
        };
        let figures = Figures::new(workload, largest, to, expected_end)
            .map_err(|error| router_core::ConfigError::new("report", format!("{error}")))?;
        let mut simulation = Self {
            figures,
            digest: Digest::default(),
            requests: InFlight::default(),
            now: 0,
            events: 0,
            stopped: None,
            tenants_are_counted,
            router,
            checker: Checker::default(),
            effects: Effects::default(),
            arrivals: Arrivals::new(workload),
            upcoming: None,
            offered: 0,
            noise: ExecutionNoise::on(workload, lanes)?,
            // A batch of best effort that is preempted is still there when the next one is handed over.
            lanes: Lanes::new(
                (lanes, ordinary),
                1 + u32::from(setup.policy.plans_ahead())
                    + u32::from(workload.models.iter().any(|model| model.best_effort)),
            ),
            partition,
            rollouts,
            pipelines,
            families: Families::new(workload),
            changes: 0,
            preemptions: VecDeque::new(),
            spins: 0,
            router_now: None,
            watch: setup.check.then(Watch::default),
            trace: setup.trace.then(Trace::default),
            violations_before: invariant::violations(),
            workload: workload.clone(),
            setup: setup.clone(),
        };
        simulation.begin(&specs, moves).map_err(|breach| simulation.broken(breach))?;
        simulation.begin_control()?;
        simulation.upcoming = simulation.arrivals.next();
        Ok(simulation)
    }

    /// `moves` say the times of the models on lanes of further device types.
    fn begin(&mut self, specs: &[ModelSpec], moves: Vec<ModelMove>) -> Result<(), Breach> {
        let lanes = if self.partition.is_some() { 0 } else { self.lanes.count() };
        for lane in 0..lanes {
            self.lane_up(lane)?;
        }
        for spec in specs {
            self.feed(Event::ModelUp(spec))?;
        }
        for spec in self.pipelines.specs.clone().values() {
            self.feed(Event::PipelineUp(spec))?;
        }
        self.begin_families()?;
        if moves.is_empty() {
            return Ok(());
        }
        self.feed(Event::Switch(&Switch { models: moves, ..Switch::default() }))
    }

    /// Runs until the traffic has ended and no request is in flight, or until the bound on events. Calls `progress`
    /// from time to time.
    ///
    /// # Errors
    /// [`SimError::Broken`] where an invariant does not hold, and where the process reached a state that cannot happen
    /// since this simulation was created. Other simulations in the process count, because the counters are shared.
    pub fn run(mut self, progress: &mut dyn FnMut(Progress)) -> Result<Report, SimError> {
        let outcome = self.run_to_end(progress);
        let reached = Breach::of_violations(&self.violations_before, &invariant::violations());
        outcome.and(reached).map_err(|breach| self.broken(breach))?;
        Ok(self.report())
    }

    fn run_to_end(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), Breach> {
        let mut report_at = PROGRESS_EVERY;
        while self.upcoming.is_some() || self.router.unfinished() > 0 || self.looks_on() {
            let Some((at, next)) = self.next()? else {
                let detail = format!("{} requests wait and nothing will wake them", self.router.unfinished());
                return Err(Breach { id: "R6", detail });
            };
            if self.events >= self.setup.max_events {
                self.stopped = Some(Stopped { at_s: seconds(self.now), max_events: self.setup.max_events });
                self.figures.window.to = self.figures.window.to.min(self.now.saturating_add(1));
                break;
            }
            // Arrivals are finite. Events that the router causes could go on forever at one moment.
            if at > self.now || next == Next::Arrival {
                self.spins = 0;
            }
            self.now = at;
            self.happen(next)?;
            if self.events >= report_at {
                report_at = self.events + PROGRESS_EVERY;
                progress(self.progress());
            }
        }
        self.idle_to_end();
        self.figures.end_lane_time(&self.router);
        progress(self.progress());
        let left = self.requests.iter().count();
        let holds = self.stopped.is_some() || left == 0;
        Breach::unless(holds, "R1", || format!("{left} requests never ended"))
    }

    /// Counts lanes as available and idle from the last event to the end of the traffic.
    fn idle_to_end(&mut self) {
        let end = if self.figures.window.to == u64::MAX { self.now } else { self.figures.window.to };
        while let Some(change) = self.change().filter(|change| change.at < end) {
            self.changes += 1;
            self.figures.lanes(change.at, 0, if change.up { 1 } else { -1 });
        }
        self.figures.lanes(end, 0, 0);
    }

    fn progress(&self) -> Progress {
        let share = match self.workload.extent {
            Extent::Time(time) => self.now as f64 / time.max(1) as f64,
            Extent::Requests(count) => self.offered as f64 / count.max(1) as f64,
        };
        Progress {
            share: share.min(1.0),
            virtual_seconds: seconds(self.now),
            requests: self.offered,
            events: self.events,
        }
    }

    /// The next event and its time.
    fn next(&mut self) -> Result<Option<(u64, Next)>, Breach> {
        let change = self.change().map(|change| (change.at.max(self.now), Next::Change));
        let end = self.lanes.next_end().map(|at| (at, Next::End));
        let arrival = self.upcoming.map(|offered| (offered.at, Next::Arrival));
        let wake = self.router.next_wake().map(|at| (at.0, Next::Wake));
        let step = self.partition.as_ref().and_then(|one| one.next_step(self.now));
        let step = step.map(|at| (at, Next::Step));
        let rollout = self.rollouts.next().filter(|_| arrival.is_some());
        let rollout = rollout.map(|at| (at.max(self.now), Next::Rollout));
        // A tick alone ends no request. If only ticks remain, a request that still waits is lost.
        let looks = arrival.is_some() || end.is_some() || wake.is_some() || self.looks_on();
        let look = self.partition.as_ref().filter(|_| looks).map(|one| (one.look_at, Next::Look));
        if let Some((at, _)) = wake {
            let is_ahead = self.router_now.is_none_or(|then| at > then) && at >= self.now;
            Breach::unless(is_ahead, "R6", || {
                format!("the router wants to be woken at {at}, which has passed")
            })?;
        }
        Ok([change, end, step, rollout, arrival, look, wake].into_iter().flatten().min())
    }

    /// Whether the control loop ticks again before the traffic ends.
    fn looks_on(&self) -> bool {
        let end = self.figures.window.to;
        end != u64::MAX && self.partition.as_ref().is_some_and(|one| one.look_at < end)
    }

    /// Whether a lane has ordinary priority.
    fn is_ordinary(&self, lane: u32) -> bool {
        !self.workload.lanes.idle_priority || lane < self.workload.lanes.count
    }

    fn change(&self) -> Option<LaneChange> {
        self.workload.lanes.changes.get(self.changes).copied()
    }

    fn happen(&mut self, next: Next) -> Result<(), Breach> {
        match next {
            Next::Change => self.lane_changes(),
            Next::End => self.batch_ends(),
            Next::Step => self.step_ends(),
            Next::Rollout => {
                self.rollouts.tick(self.now);
                Ok(())
            }
            Next::Look => self.look(),
            Next::Arrival => self.request_arrives(),
            Next::Wake => self.feed(Event::Tick),
        }?;
        loop {
            if let Some((lane, batch)) = self.preemptions.pop_front() {
                self.give_back(lane, batch)?;
            } else if let Some(end) = self.pipelines.ended.pop_front() {
                self.stage_part_ended(end)?;
            } else {
                break;
            }
        }
        while let Some(request) = self.rollouts.mirrors.pop_front() {
            self.mirror(request)?;
        }
        if self.workload.lanes.idle_priority {
            self.figures.at_idle_priority(self.now, self.lanes.working_at_idle_priority());
        }
        self.tell_control()
    }

    fn lane_changes(&mut self) -> Result<(), Breach> {
        let Some(change) = self.change() else {
            invariant::violated!("sim.missing_lane_change");
            return Ok(());
        };
        self.changes += 1;
        if change.up {
            return self.lane_up(change.lane);
        }
        let (running, waiting) = self.lanes.go_down(change.lane, self.now);
        if let Some(running) = running {
            self.figures.ran(self.now, change.lane, &running, SpanEnd::Lost);
        }
        self.figures.lanes(self.now, -i32::from(running.is_some()), -1);
        for held in running.map(|running| running.held).into_iter().chain(waiting) {
            self.figures.lost += u64::from(self.figures.window.contains(self.now));
            if let Some(watch) = &mut self.watch {
                watch.ended(held.batch);
            }
        }
        self.feed(Event::LaneDown(LaneId(change.lane)))
    }

    fn lane_up(&mut self, lane: u32) -> Result<(), Breach> {
        self.lanes.come_up(lane);
        if self.is_ordinary(lane) {
            self.figures.lanes(self.now, 0, 1);
        }
        let device_type = self.workload.device_type_of(lane);
        let lane_class = LaneClass(u32::try_from(device_type).unwrap_or(u32::MAX));
        self.feed(Event::LaneUp(LaneSpec::new(LaneId(lane), lane_class)))
    }

    fn batch_ends(&mut self) -> Result<(), Breach> {
        let Some((lane, running)) = self.lanes.finish_next() else {
            invariant::violated!("sim.missing_batch_end");
            return Ok(());
        };
        self.figures.ran(self.now, lane, &running, SpanEnd::Done);
        if let Some(partition) = &mut self.partition {
            partition.ended(lane, &running);
        }
        self.free_lane(lane, running.held.batch);
        self.feed(Event::BatchDone(BatchReport { lane: LaneId(lane), batch: running.held.batch, ok: true }))
    }

    /// Frees a lane whose batch ended, and starts the batch that waits for the lane.
    fn free_lane(&mut self, lane: u32, batch: BatchId) {
        let (now, noise) = (self.now, &mut self.noise);
        let (workload, rollouts) = (&self.workload, &self.rollouts);
        let time = |held| time_on_lane(noise, (workload, rollouts), lane, held, now);
        if !self.lanes.start_next(lane, now, time) && self.is_ordinary(lane) {
            self.figures.lanes(now, -1, 0);
        }
        if let Some(watch) = &mut self.watch {
            watch.ended(batch);
        }
    }

    fn give_back(&mut self, lane: LaneId, batch: BatchId) -> Result<(), Breach> {
        // Nothing happens between the router's effect and this call that could end the batch.
        let Some(running) = self.lanes.preempt(lane.0, batch) else {
            invariant::violated!("sim.preempted_batch_unknown");
            return Ok(());
        };
        self.figures.preempted += u64::from(self.figures.window.contains(self.now));
        match running {
            Some(running) => {
                self.figures.ran(self.now, lane.0, &running, SpanEnd::Preempted);
                if let Some(partition) = &mut self.partition {
                    partition.open_gpulets.ends(lane.0);
                }
                self.free_lane(lane.0, batch);
            }
            None => {
                if let Some(watch) = &mut self.watch {
                    watch.ended(batch);
                }
            }
        }
        self.feed(Event::BatchReturned { lane, batch })
    }

    fn request_arrives(&mut self) -> Result<(), Breach> {
        let Some(offered) = self.upcoming.take() else {
            invariant::violated!("sim.missing_arrival");
            return Ok(());
        };
        self.offered += 1;
        self.upcoming = self.arrivals.next();
        let Some(model) = self.workload.models.get(offered.model as usize) else {
            invariant::violated!("sim.arrival_of_unknown_model");
            return Ok(());
        };
        let deadline = model.deadline.then(|| Nanos(self.now).after(Nanos(model.slo)));
        if model.pipeline.is_some() {
            if self.upcoming.is_none() && matches!(self.workload.extent, Extent::Requests(_)) {
                self.figures.window.to = self.figures.window.to.min(self.now.saturating_add(1));
            }
            return self.flow_arrives(&offered, deadline);
        }
        let (model_number, tenant, rows) = (offered.model, offered.tenant, offered.rows);
        let class = if model.best_effort { Class::BEST_EFFORT } else { Class::new(model.priority) };
        let bytes = model.row_bytes.saturating_mul(u64::from(rows));
        let (family, (version, part)) = match &model.family {
            None => (None, self.rollouts.route(model_number, tenant)),
            Some(family) => {
                let incoming = Incoming { class, rows, bytes, deadline };
                let variant = families::choose(&mut self.router, self.now, &incoming, (model_number, family));
                (Some(FamilyId(model_number)), (variant, Part::Variant(variant.0)))
            }
        };
        let request = Request { arrived: self.now, deadline, model: model_number, tenant, rows, part };
        let arrival = Arrival {
            request: self.requests.insert(request),
            model: version,
            class,
            tenant: Tenant::new(tenant),
            shape: ShapeKey::default(),
            rows,
            bytes,
            deadline,
            timeout_action: Default::default(),
            pipeline: None,
        };
        if self.upcoming.is_none() && matches!(self.workload.extent, Extent::Requests(_)) {
            // A workload that ends by count ends with its last request, which counts.
            self.figures.window.to = self.figures.window.to.min(self.now.saturating_add(1));
        }
        self.figures.came(&request);
        match family {
            Some(family) => self.feed(Event::ArriveAtVariant(arrival, family)),
            None => self.feed(Event::Arrive(arrival)),
        }
    }

    /// Runs a request that the stable version answered on the canary too, after everything else that waits.
    fn mirror(&mut self, request: Request) -> Result<(), Breach> {
        let Some(version) = self.rollouts.canary(request.model) else { return Ok(()) };
        let row_bytes = self.workload.models.get(request.model as usize).map_or(0, |model| model.row_bytes);
        let arrival = Arrival {
            request: self.requests.insert(request),
            model: version,
            class: Class::new(u8::MAX),
            tenant: Tenant::new(u16::MAX),
            shape: ShapeKey::default(),
            rows: request.rows,
            bytes: row_bytes.saturating_mul(u64::from(request.rows)),
            deadline: None,
            timeout_action: Default::default(),
            pipeline: None,
        };
        self.feed(Event::Arrive(arrival))
    }

    /// Feeds an event to the router and carries out its effects.
    fn feed(&mut self, event: Event<'_>) -> Result<(), Breach> {
        self.events += 1;
        self.spins += 1;
        Breach::unless(self.spins < SPIN_MAX, "R6", || format!("{SPIN_MAX} events and no time passed"))?;
        self.digest.event(self.now, &event);
        if let Some(trace) = &mut self.trace {
            trace.note(self.now, &event);
        }
        if self.tenants_are_counted {
            self.figures.note_lane_time(self.now, &self.router);
        }
        self.router_now = Some(self.now);
        self.router.handle(Nanos(self.now), event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            if let Some(trace) = &mut self.trace {
                trace.note(self.now, effect);
            }
            self.carry_out(*effect, &effects)?;
        }
        effects.clear();
        self.effects = effects;
        // A watched run checks everything after each event; others check as much as a server does.
        if self.watch.is_some() {
            Ok(self.router.check()?)
        } else {
            Ok(self.checker.after_event(&self.router)?)
        }
    }

    fn carry_out(&mut self, effect: Effect, effects: &Effects) -> Result<(), Breach> {
        self.digest.effect(&effect);
        match effect {
            Effect::Dispatch { lane, batch, model, rows, members } => {
                if let Some(watch) = &mut self.watch {
                    watch.dispatched(Nanos(self.now), batch, effects.members(members), &self.requests)?;
                }
                let (now, noise) = (self.now, &mut self.noise);
                let (workload, rollouts) = (&self.workload, &self.rollouts);
                let (model, canary) = rollouts.model_of(model);
                let held = Held { batch, model, canary, rows };
                let predicted = |one: &Partitioned| one.co_located_time(lane.0, held, &self.lanes);
                let profiled = self.partition.as_deref().map(predicted).transpose()?;
                let time = || match profiled {
                    Some(profiled) => noise.true_time(lane.0, model, profiled, now),
                    None => time_on_lane(noise, (workload, rollouts), lane.0, held, now),
                };
                if self.lanes.give(lane.0, held, now, time)? && self.is_ordinary(lane.0) {
                    self.figures.lanes(now, 1, 0);
                    if let Some(partition) = &mut self.partition {
                        partition.open_gpulets.begins(lane.0)?;
                    }
                }
            }
            Effect::Finish { request, outcome, reason } => {
                let Some(ended) = self.requests.remove(request) else {
                    return Err(Breach {
                        id: "R1",
                        detail: format!("{request:?} ended and was not in flight"),
                    });
                };
                if let Some(watch) = &mut self.watch {
                    watch.finished(request);
                }
                if let Part::Stage { flow, stage } = ended.part {
                    // A server does not count what it cancels either.
                    if let Some(partition) = self.partition.as_mut().filter(|_| outcome != Outcome::Cancelled)
                    {
                        partition.count(self.now, self.pipelines.model_of(&ended), &ended, outcome);
                    }
                    self.pipelines.ended.push_back(PartEnd { request, flow, stage, outcome, reason });
                    return Ok(());
                }
                let (outcome, reason) = self.rollouts.ended(self.now, &ended, (outcome, reason));
                if ended.part == Part::Mirror {
                    return Ok(());
                }
                if outcome == Outcome::Done && self.figures.window.contains(ended.arrived) {
                    self.families.answered(self.now, &ended, &self.workload);
                }
                self.figures.went(self.now, &ended, outcome, reason);
                if let Some(partition) = &mut self.partition {
                    partition.count(self.now, self.pipelines.model_of(&ended), &ended, outcome);
                }
            }
            Effect::Preempt { lane, batch } => {
                self.preemptions.push_back((lane, batch));
            }
            // Without a control loop, only `begin` switches.
            Effect::Switched if self.partition.is_none() => {}
            Effect::Switched => self.answer_switch(Ok(())),
            Effect::SwitchRefused(refusal) => self.answer_switch(Err(refusal.to_string())),
            Effect::LaneIdle(lane) => self.lane_rests(lane),
            // No workload takes models away.
            Effect::Retired(_) => {}
        }
        Ok(())
    }

    fn broken(&self, breach: Breach) -> SimError {
        SimError::Broken(Box::new(Broken {
            id: breach.id,
            detail: breach.detail,
            workload: self.workload.name.clone(),
            policy: self.setup.label.clone(),
            seed: self.workload.seed,
            at: self.now,
            event: self.events,
            trace: self.trace.as_ref().map(Trace::lines).unwrap_or_default(),
        }))
    }
}

/// How long a batch takes on a lane.
fn time_on_lane(
    noise: &mut ExecutionNoise,
    (workload, rollouts): (&Workload, &Rollouts),
    lane: u32,
    held: Held,
    now: u64,
) -> u64 {
    if !held.canary {
        return noise.time(lane, held.model, held.rows, now);
    }
    let profile = workload.models.get(held.model as usize).and_then(|model| model.profile.as_ref());
    let profiled = profile.map_or(0, |profile| profile.time(held.rows));
    noise.true_time(lane, held.model, scaled(profiled, rollouts.time_factor(held.model)), now)
}
