//! The task that looks at the load and makes plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet_core::check::check;
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::Problem;
use gpulet_core::rollout::{Event, Outcome, Proposal};
use gpulet_core::scaling::{
    Autoscaler, ModelObservation, Observation, ScalingOptions, Service, StandbyAfter,
};
use router_core::Snapshot;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::by_hand::{self, ByHand, Reply};
use super::load::LoadWatch;
use super::micros;
use super::shell::{Shell, Told};
use super::terms::{Planned, Targets, Terms};
use super::view::{self, Latest, View};
use crate::catalog::{Catalog, Loaded, ModelsHeld};
use crate::config::Partition;
use crate::reason::Refusal;

/// After a plan that could not be made or carried out, another is thought of no sooner.
const PAUSE: Duration = Duration::from_secs(10);

/// A model of whose answers fewer are in time although the plan serves all that is asked is not as predicted.
const LATE_BELOW: f64 = 0.5;

/// An operator's word.
pub enum Command {
    View(oneshot::Sender<Box<View>>),
    Plan(Plan, Reply),
    Freeze,
    Thaw,
}

/// The scaler with the models that it was made for.
struct Scaling {
    names: Vec<String>,
    scaler: Autoscaler,
}

pub struct Task {
    options: Partition,
    catalog: Arc<Catalog>,
    terms: Arc<Terms>,
    shell: Shell,
    scaling: Option<Scaling>,
    watch: LoadWatch,
    latest: Latest,
    /// Rows a second that the plan in force serves of each model.
    capacity: BTreeMap<String, f64>,
    /// What the plan in force, or the one that is being carried out, was made for.
    problem: Option<Problem>,
    /// Another plan is needed, whatever the load does.
    replan: bool,
    /// Models that gave up their place to others, for want of memory.
    evicted: BTreeSet<String>,
    not_before: Option<Instant>,
    by_hand: ByHand,
    /// Held while a change is under way.
    held: Option<ModelsHeld>,
}

impl Task {
    pub fn new(options: Partition, catalog: Arc<Catalog>, terms: Terms, shell: Shell) -> Self {
        Self {
            options,
            catalog,
            terms: Arc::new(terms),
            shell,
            scaling: None,
            watch: LoadWatch::default(),
            latest: Latest::default(),
            capacity: BTreeMap::new(),
            problem: None,
            replan: true,
            evicted: BTreeSet::new(),
            not_before: None,
            by_hand: ByHand::default(),
            held: None,
        }
    }

    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>, stop: CancellationToken) {
        if self.options.frozen {
            self.turn(Event::Freeze);
        }
        let wanted = self.catalog.wanted();
        let mut ticks = interval(self.options.period.0);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = self.shell.next() => self.turn(event),
                Some(command) = commands.recv() => self.command(command),
                _ = ticks.tick() => self.look().await,
                () = wanted.notified() => self.look().await,
            }
            if self.shell.rollout().is_idle() {
                self.held = None;
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::View(reply) => {
                let (models, now_us) = (self.models(), self.shell.now_us());
                let rollout = self.shell.rollout();
                let view = view::of(
                    rollout,
                    &self.latest,
                    self.problem.as_ref(),
                    &models,
                    now_us,
                    self.by_hand.holds(),
                );
                // Whoever asked may have left.
                let _ = reply.send(Box::new(view));
            }
            Command::Plan(plan, reply) => match self.accept(&plan) {
                Ok((planned, proposal, held)) => {
                    self.by_hand.begin(self.shell.rollout().proposals() + 1, reply);
                    self.replan = false;
                    self.held = Some(held);
                    self.begin(planned, proposal);
                }
                Err(refusal) => by_hand::refuse(reply, refusal),
            },
            Command::Freeze => self.turn(Event::Freeze),
            Command::Thaw => {
                self.by_hand.give_up();
                self.replan = true;
                self.turn(Event::Thaw);
            }
        }
    }

    /// The version that unversioned requests get, of every model.
    fn models(&self) -> Vec<Arc<Loaded>> {
        let names = self.catalog.serving_names();
        names.iter().filter_map(|name| self.catalog.serving(name).pop()).collect()
    }

    /// Looks at the load, and plans if that asks for it.
    async fn look(&mut self) {
        let models = self.models();
        let Some(snapshot) = self.catalog.router().snapshot().await else { return };
        self.report_broken(&snapshot);
        let observed = self.watch.look(&models, &snapshot, &self.capacity);
        self.report_late(&models, &observed);
        self.refresh(&models).await;
        if let Err(reason) = self.rescale(&models) {
            self.pause(reason);
            return;
        }
        let now_us = self.shell.now_us();
        let Some(scaling) = &mut self.scaling else { return };
        let decision = scaling.scaler.decide(&Observation { now_us, models: &observed });
        let missed =
            |name: &str| models.iter().any(|loaded| loaded.name == name && loaded.place.waiting() > 0);
        let before = self.evicted.len();
        self.evicted.retain(|name| !missed(name));
        let wanted = decision.is_change || self.replan || self.evicted.len() < before;
        self.latest.looked(&models, &observed, &decision);
        let early = self.not_before.is_some_and(|at| Instant::now() < at);
        let rollout = self.shell.rollout();
        self.replan = wanted;
        if wanted && !early && !rollout.is_frozen() && rollout.is_idle() && !self.by_hand.holds() {
            self.plan(models).await;
        }
    }

    /// Tells the rollout of gpulets whose models miss their objectives although less is asked than the plan serves.
    fn report_late(&mut self, models: &[Arc<Loaded>], observed: &[ModelObservation]) {
        let period_s = self.options.period.0.as_secs_f64();
        for (loaded, seen) in models.iter().zip(observed) {
            let Some(attainment) = seen.attainment.filter(|attainment| *attainment < LATE_BELOW) else {
                continue;
            };
            if seen.arrivals as f64 > seen.capacity * period_s {
                continue;
            }
            let serves = |gpulet: &Gpulet| gpulet.slots.iter().any(|slot| slot.workload == loaded.name);
            let active = self.shell.rollout().active();
            let late: Vec<_> = active.filter(|(_, gpulet)| serves(gpulet)).map(|(id, _)| id).collect();
            let reason = format!("{:.0} % of the answers of `{}` in time", 100.0 * attainment, loaded.name);
            for gpulet in late {
                self.turn(Event::Late { gpulet, reason: reason.clone() });
            }
        }
    }

    /// What follows from models that were loaded anew, and what was predicted beside what is measured.
    async fn refresh(&mut self, models: &[Arc<Loaded>]) {
        let plan = self.shell.rollout().plan();
        for loaded in models {
            if let Some(ratio) = view::surprise(loaded, self.problem.as_ref(), &plan) {
                loaded.metrics.over_predicted(ratio);
            }
        }
        if self.shell.rollout().is_idle()
            && self.shell.is_stale()
            && let Some(_held) = self.catalog.hold_models()
            && let Err(reason) = self.shell.refresh().await
        {
            tracing::warn!(%reason, "models that were loaded anew take no turns yet");
        }
    }

    fn report_broken(&mut self, snapshot: &Snapshot) {
        let is_up = |lane: u32| snapshot.lanes.iter().any(|known| known.lane.0 == lane);
        if let Some(gpulet) = self.shell.broken(is_up) {
            self.turn(Event::Fault { gpulet, reason: "its lane ended".to_owned() });
        }
    }

    /// A scaler for the models that there are; the targets of those that it knew stay.
    fn rescale(&mut self, models: &[Arc<Loaded>]) -> Result<(), String> {
        let names: Vec<String> = models.iter().map(|loaded| loaded.name.clone()).collect();
        if self.scaling.as_ref().is_some_and(|scaling| scaling.names == names) {
            return Ok(());
        }
        let services = models.iter().map(|loaded| self.terms.service(loaded));
        let services = services.collect::<Result<Vec<Service>, String>>()?;
        let planned: Vec<f64> = names.iter().map(|name| self.latest.target(name).unwrap_or(0.0)).collect();
        let idle_us = self.options.idle.map(|idle| micros(idle.0));
        let standby = idle_us.map(|idle_us| StandbyAfter { warm_us: idle_us, cold_us: idle_us });
        let options = ScalingOptions { standby, ..ScalingOptions::default() };
        let scaler = Autoscaler::new(&self.options.scaling, &services, options, &planned);
        let scaler = scaler.map_err(|error| format!("partition.scaling: {error}"))?;
        self.scaling = Some(Scaling { names, scaler });
        self.replan = true;
        Ok(())
    }

    async fn plan(&mut self, models: Vec<Arc<Loaded>>) {
        // A load under way would miss the lanes to come: after it.
        let Some(held) = self.catalog.hold_models() else { return };
        let current = self.shell.rollout().plan();
        let first = current.gpulets.is_empty();
        let (terms, targets, asked_us) = (Arc::clone(&self.terms), self.targets(), self.latest.asked_us());
        let planning = move || {
            let (planned, gone) = terms.plan_without(&models, &targets, &asked_us, |targets| {
                if !first {
                    return terms.plan(&models, targets, Some(&current));
                }
                let found = terms.as_found(&models, targets)?;
                let fits = Proposal::new(&found.plan, &found.problem).map(drop);
                fits.map(|()| found).map_err(|error| error.to_string())
            })?;
            // Old and new do not fit in together: first those leave, and who needs their room comes with the next plan.
            if gone.iter().all(|name| current.slots_of(name).next().is_none()) {
                return Ok((planned, gone, false));
            }
            let mut room = targets;
            room.away.extend(gone.iter().cloned());
            let homeless = models.iter().filter(|loaded| !loaded.place.is_taken());
            room.away.extend(homeless.map(|loaded| loaded.name.clone()));
            let planned = terms.plan(&models, &room, Some(&current))?;
            Ok((planned, gone, true))
        };
        let planned =
            tokio::task::spawn_blocking(planning).await.unwrap_or_else(|error| Err(error.to_string()));
        let proposed = planned.and_then(|(planned, gone, again)| {
            let proposal =
                Proposal::new(&planned.plan, &planned.problem).map_err(|error| error.to_string())?;
            Ok((planned, gone, again, proposal))
        });
        match proposed {
            Ok((planned, gone, again, proposal)) => {
                if !gone.is_empty() {
                    tracing::warn!(models = ?gone, "memory is short: they give up their gpulets");
                    self.evicted.extend(gone);
                }
                // After the plan that the server starts with comes one for its load.
                self.replan = first || again;
                self.held = Some(held);
                self.begin(planned, proposal);
            }
            Err(reason) => self.pause(reason),
        }
    }

    /// What an operator's plan would be put in force with.
    fn accept(&mut self, plan: &Plan) -> Result<(Planned, Proposal, ModelsHeld), Refusal> {
        if self.shell.rollout().is_frozen() {
            return Err(by_hand::refusal("gpulets are frozen: POST /v2/partition/thaw first"));
        }
        let models = self.models();
        let planned = self.terms.by_hand(&models, &self.targets(), plan)?;
        let proposal =
            Proposal::new(&planned.plan, &planned.problem).map_err(|error| by_hand::impossible(&error))?;
        let held = self.held.take().or_else(|| self.catalog.hold_models());
        let held = held
            .ok_or_else(|| by_hand::refusal("a model is loaded or unloaded just now: ask again after it"))?;
        Ok((planned, proposal, held))
    }

    fn targets(&self) -> Targets {
        let names = self.scaling.iter().flat_map(|scaling| &scaling.names);
        let target = |name: &String| (name.clone(), self.latest.target(name).unwrap_or(0.0));
        let away = names.clone().filter(|name| self.latest.is_away(name) || self.evicted.contains(*name));
        let away = away.cloned().collect();
        Targets { rates: names.map(target).collect(), away }
    }

    fn begin(&mut self, planned: Planned, proposal: Proposal) {
        self.latest.planned(&planned);
        self.problem = Some(planned.problem);
        self.turn(Event::Propose(proposal));
    }

    fn pause(&mut self, reason: String) {
        if self.latest.cannot_plan(&reason) {
            tracing::warn!(%reason, "no plan: gpulets stay as they are");
        }
        self.replan = true;
        self.not_before = Some(Instant::now() + PAUSE);
    }

    fn turn(&mut self, event: Event) {
        for told in self.shell.turn(event) {
            match told {
                Told::Ended { proposal, outcome } => self.ended(proposal, &outcome),
                Told::PlanNeeded => {
                    if self.by_hand.lost() {
                        tracing::warn!("the plan that was put in force by hand cannot hold any more");
                    }
                    self.replan = true;
                }
            }
        }
    }

    fn ended(&mut self, proposal: u64, outcome: &Outcome) {
        let plan = self.shell.rollout().plan();
        self.judge(&plan);
        self.latest.ended(outcome);
        self.by_hand.ended(proposal, outcome, self.shell.rollout().epoch(), self.problem.as_ref(), &plan);
        match outcome {
            Outcome::Done | Outcome::Unchanged | Outcome::Superseded => {
                self.not_before = None;
                tracing::info!(proposal, ?outcome, gpulets = plan.gpulets.len(), "plan in force");
            }
            Outcome::Refused { .. }
            | Outcome::Failed { .. }
            | Outcome::RolledBack { .. }
            | Outcome::Stopped { .. } => {
                tracing::warn!(proposal, ?outcome, "plan not in force");
                self.replan = true;
                self.not_before = Some(Instant::now() + PAUSE);
            }
        }
    }

    fn judge(&mut self, plan: &Plan) {
        let Some(problem) = &self.problem else { return };
        self.capacity.clear();
        for slot in check(problem, plan).slots {
            *self.capacity.entry(slot.workload).or_default() += slot.capacity;
        }
    }
}
