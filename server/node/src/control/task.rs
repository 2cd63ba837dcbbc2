//! The task that runs the control loop: its clock, its lanes and its log messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gpulet_core::control::{
    BatchTotals, Controller, Effect, Event, Family, LoadReport, LostDevice, ModelLoad, NoPlan, PlanRequest,
};
use gpulet_core::id::ProposalId;
use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::problem::Problem;
use gpulet_core::rollout::{self, GpuletId, Outcome};
use router_core::Snapshot;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::load;
use super::operator_plan::{self, Reply, Waiting};
use super::profile_corrections::ToldCorrections;
use super::shapes;
use super::shell::{EffectRunner, Notice};
use super::terms::{self, Terms};
use super::view::{self, View};
use crate::catalog::{Catalog, Loaded, ModelsHeld};
use crate::config::Partition;
use crate::metrics::{InterferenceMetrics, PlanMetrics, device_up, plan_ended, plans_begin};
use crate::reason::Refusal;

/// Most gpulets, and models, that a log line lists.
const LISTED: usize = 32;

/// A command from an operator.
pub enum Command {
    View(oneshot::Sender<Box<View>>),
    Plan(Plan, Reply),
    Freeze,
    Thaw,
}

pub struct Task {
    options: Partition,
    catalog: Arc<Catalog>,
    terms: Terms,
    runner: EffectRunner,
    controller: Controller,
    interference: InterferenceMetrics,
    corrections: ToldCorrections,
    plan_shown: PlanMetrics,
    operator_plan: Waiting,
    /// Prevents loads and unloads while a change is in progress.
    held: Option<ModelsHeld>,
}

impl Task {
    /// Creates the task. Its devices count as up.
    pub fn new(
        options: Partition,
        catalog: Arc<Catalog>,
        terms: Terms,
        runner: EffectRunner,
        controller: Controller,
    ) -> Self {
        plans_begin();
        for device in &terms.terms().devices {
            device_up(&device.name, true);
        }
        Self {
            options,
            catalog,
            terms,
            runner,
            controller,
            interference: InterferenceMetrics::default(),
            corrections: ToldCorrections::default(),
            plan_shown: PlanMetrics::default(),
            operator_plan: Waiting::default(),
            held: None,
        }
    }

    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>, stop: CancellationToken) {
        if self.options.frozen {
            self.rollout(rollout::Event::Freeze);
        }
        let wanted = self.catalog.wanted();
        let mut ticks = interval(self.options.period.0);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let wake = self.controller.next_wake();
            tokio::select! {
                () = stop.cancelled() => return,
                event = self.runner.next(wake) => self.rollout(event),
                Some(command) = commands.recv() => self.command(command),
                _ = ticks.tick() => self.look().await,
                () = wanted.notified() => self.look().await,
            }
            if self.controller.rollout().is_idle() {
                self.held = None;
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::View(reply) => {
                let (warm, now) = (self.catalog.warm_pool_counts(), self.runner.now());
                let loaded = self.models();
                let known = self.terms.models(&loaded, &self.catalog.stages());
                let warnings = loaded.iter().zip(&known).map(|(loaded, model)| shapes::other(loaded, model));
                let models: Vec<_> = loaded.iter().cloned().zip(warnings).collect();
                let view = view::of(&self.controller, &models, warm, now);
                // The client may have disconnected.
                let _ = reply.send(Box::new(view));
            }
            Command::Plan(plan, reply) => match self.accept(&plan) {
                Ok((event, held)) => {
                    self.operator_plan.begin(self.controller.rollout().proposals().next(), reply);
                    self.held = Some(held);
                    self.tell(event);
                }
                Err(refusal) => operator_plan::refuse(reply, refusal),
            },
            Command::Freeze => self.rollout(rollout::Event::Freeze),
            Command::Thaw => self.tell(Event::Thaw),
        }
    }

    /// The version of every planned model that serves requests without a version.
    fn models(&self) -> Vec<Arc<Loaded>> {
        let planned: BTreeSet<String> =
            self.catalog.all_planned().iter().map(|loaded| loaded.name.clone()).collect();
        planned.iter().filter_map(|name| self.catalog.find(name, None).ok()).collect()
    }

    /// Families that take requests. Without a policy for their variants, the control loop needs none of them.
    fn families(&self) -> Vec<Family> {
        if self.terms.terms().variants.name().is_none() {
            return Vec::new();
        }
        let names = self.catalog.serving_names().into_iter();
        names.filter_map(|name| terms::family(&*self.catalog.find(&name, None).ok()?)).collect()
    }

    /// Reports the load to the controller, and makes a plan if the controller requests one.
    async fn look(&mut self) {
        let models = self.models();
        let Some(snapshot) = self.catalog.router().snapshot().await else { return };
        self.report_broken(&snapshot);
        self.refresh(&models).await;
        let known = self.terms.models(&models, &self.catalog.stages());
        self.terms.tell_other_shapes(&known, &models);
        let known = known.into_iter().zip(&models);
        let looked = known.map(|(model, loaded)| ModelLoad { model, seen: load::seen(loaded, &snapshot) });
        let reserved = self.terms.reserved(&self.catalog.all_at_idle_priority());
        let (models_seen, families) = (looked.collect(), self.families());
        let look = LoadReport { models: models_seen, families, ran: self.ran(&models), reserved };
        let question = self.process(Event::Load(look));
        self.interference.tell(&self.controller.interference());
        self.corrections.tell(self.controller.profile_corrections());
        self.show_plan(&models);
        if let Some(question) = question {
            self.plan(question).await;
        }
    }

    fn show_plan(&mut self, models: &[Arc<Loaded>]) {
        let (rollout, latest) = (self.controller.rollout(), self.controller.latest());
        let devices = self.controller.problem().map(Problem::devices).unwrap_or_default();
        let mut gpulets: BTreeMap<&str, usize> =
            devices.iter().map(|device| (device.name.as_str(), 0)).collect();
        for (_, gpulet) in rollout.active() {
            *gpulets.entry(gpulet.device.as_str()).or_default() += 1;
        }
        let planned = models
            .iter()
            .filter_map(|loaded| Some((loaded.name.as_str(), latest.model(&loaded.name)?.target)));
        self.plan_shown.show(&gpulets, &planned.collect(), latest.share());
    }

    /// Totals of the batches that active gpulets have run.
    fn ran(&self, models: &[Arc<Loaded>]) -> Vec<BatchTotals> {
        let active = self.controller.rollout().active();
        let gpulets: BTreeMap<u32, GpuletId> =
            active.filter_map(|(gpulet, _)| Some((self.runner.lane_number(gpulet)?, gpulet))).collect();
        models.iter().flat_map(|loaded| load::ran(loaded, &gpulets)).collect()
    }

    /// Updates the ratios of measured to predicted times, and puts the table in force again after models were reloaded.
    async fn refresh(&mut self, models: &[Arc<Loaded>]) {
        let plan = self.controller.rollout().plan();
        for loaded in models {
            if let Some(ratio) = view::surprise(loaded, self.controller.problem(), &plan) {
                loaded.metrics.over_predicted(ratio);
            }
        }
        if self.controller.rollout().is_idle()
            && self.runner.is_stale()
            && let Some(_held) = self.catalog.hold_models()
            && let Err(reason) = self.runner.refresh().await
        {
            tracing::warn!(%reason, "reloaded models get no time slices yet");
        }
    }

    fn report_broken(&mut self, snapshot: &Snapshot) {
        let is_up = |lane: u32| snapshot.lanes.iter().any(|known| known.lane.0 == lane);
        let mut active = self.controller.rollout().active().map(|(id, _)| id);
        if let Some(gpulet) = active.find(|gpulet| self.runner.is_broken(*gpulet, is_up)) {
            drop(active);
            self.rollout(rollout::Event::Fault { gpulet, reason: "its lane ended".to_owned() });
        }
    }

    async fn plan(&mut self, question: Box<PlanRequest>) {
        // A load in progress would miss the new lanes: plan after it.
        let Some(held) = self.catalog.hold_models() else {
            return self.tell(Event::Planned(question.refused(NoPlan::Busy)));
        };
        let unasked = question.refused(NoPlan::Busy);
        let answer = match tokio::task::spawn_blocking(move || question.answer()).await {
            Ok(answer) => answer,
            Err(error) => unasked.because(NoPlan::Impossible(error.to_string())),
        };
        self.held = Some(held);
        self.tell(Event::Planned(answer));
    }

    /// Accepts an operator plan. Returns its event, and what prevents loads and unloads.
    fn accept(&mut self, plan: &Plan) -> Result<(Event, ModelsHeld), Refusal> {
        let models = self.terms.models(&self.models(), &self.catalog.stages());
        let accepted = self.controller.accept(&models, plan).map_err(operator_plan::not_accepted)?;
        let held = self.held.take().or_else(|| self.catalog.hold_models());
        let held = held
            .ok_or_else(|| operator_plan::refusal("a model is being loaded or unloaded: retry afterwards"))?;
        Ok((Event::OperatorPlan(accepted), held))
    }

    fn rollout(&mut self, event: rollout::Event) {
        self.tell(Event::Rollout(event));
    }

    /// Handles an event that cannot request a plan.
    fn tell(&mut self, event: Event) {
        let question = self.process(event);
        debug_assert!(question.is_none(), "only load reports request a plan");
    }

    /// Handles one event and carries out its effects. Returns a plan request for the caller to carry out.
    fn process(&mut self, event: Event) -> Option<Box<PlanRequest>> {
        let (mut effects, mut question) = (Vec::new(), None);
        self.controller.handle(self.runner.now(), event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Plan(asked) => question = Some(asked),
                Effect::Rollout(effect) => {
                    let told = self.runner.carry_out(effect, self.controller.rollout());
                    if let Some(Notice::Ended { proposal, outcome }) = told {
                        self.ended(proposal, &outcome);
                    }
                }
                Effect::OperatorPlanEnded { proposal, answer } => self.operator_plan.ended(proposal, answer),
                Effect::OperatorPlanReleased => {
                    tracing::warn!("the operator plan no longer holds and is released");
                }
                Effect::NoPlan { reason } => {
                    tracing::warn!(%reason, "no plan: gpulets stay as they are");
                }
                Effect::DeviceLost(LostDevice { device, reason, at_us, retry_us }) => {
                    let retry_in = Duration::from(retry_us.since(at_us));
                    tracing::error!(%device, %reason, ?retry_in, "a device is lost: plans do without it");
                    device_up(&device, false);
                }
                Effect::DeviceBack { device } => {
                    tracing::info!(%device, "the device is back");
                    device_up(&device, true);
                }
                Effect::Evicted { models } => {
                    tracing::warn!(?models, "memory is short: these models lose their gpulets");
                }
            }
        }
        question
    }

    /// Which models each gpulet runs, and the reason for the rate that each model is planned for.
    fn layout_in_words(&self) -> (Vec<String>, Vec<String>) {
        let (rollout, latest) = (self.controller.rollout(), self.controller.latest());
        let slot = |slot: &Slot| format!("{} ({} rows)", slot.workload, slot.batch);
        let gpulet = |gpulet: &Gpulet| {
            let models: Vec<String> = gpulet.slots.iter().map(slot).collect();
            let (first, last) = (gpulet.first_unit, gpulet.first_unit + gpulet.units.saturating_sub(1));
            format!("{} units {first}-{last}: {}", gpulet.device, models.join(", "))
        };
        let gpulets = rollout.active().take(LISTED).map(|(_, known)| gpulet(known)).collect();
        let mut models: Vec<&str> = rollout
            .active()
            .flat_map(|(_, known)| known.slots.iter().map(|slot| slot.workload.as_str()))
            .collect();
        models.sort_unstable();
        models.dedup();
        let reason = |name: &&str| {
            let known = latest.model(name)?;
            Some(format!("{name}: {:.1}/s: {}", known.target, known.reason))
        };
        (gpulets, models.iter().filter_map(reason).take(LISTED).collect())
    }

    fn ended(&self, proposal: ProposalId, outcome: &Outcome) {
        match outcome {
            Outcome::Done | Outcome::Unchanged | Outcome::Superseded => {
                plan_ended(true);
                let (gpulets, reasons) = self.layout_in_words();
                tracing::info!(%proposal, ?outcome, ?gpulets, ?reasons, "plan in force");
            }
            Outcome::Refused { .. }
            | Outcome::Failed { .. }
            | Outcome::RolledBack { .. }
            | Outcome::Stopped { .. } => {
                plan_ended(false);
                tracing::warn!(%proposal, ?outcome, "plan not in force");
            }
        }
    }
}
