//! The control loop: evaluates the load, decides which rates to plan for, requests plans, and changes gpulets while
//! they serve.
//!
//! [`Controller`] owns all decisions: the scaler, the [`Rollout`], evictions, the pause after a failure, and the
//! operator's plan. It takes `(now, event)` and appends effects. The server carries them out with lanes and threads,
//! the simulator in virtual time. Planning may take a while, so it is an effect too: [`Effect::Plan`] holds a
//! [`PlanRequest`], which any thread may answer. The answer comes back as [`Event::Planned`].
//!
//! Times are microseconds on whatever clock the caller has. Memory is bounded: by the number of models, and a
//! fixed number of remembered decisions.

mod change_time;
mod counts;
mod evaluate;
mod families;
mod feedback;
mod interference_learning;
mod latest;
mod load;
mod lost_devices;
mod message;
mod operator_plan;
mod plan_request;
mod planning;
mod profile_correction;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::change_time::ChangeTime;
pub use self::counts::{BatchTotals, Counts, ModelCounts, ModelLoad};
pub use self::families::{ChooseVariants, Family, FamilyDemand, FamilyVariant, VariantPolicy};
use self::feedback::Feedback;
use self::interference_learning::InterferenceLearning;
pub use self::interference_learning::{ErrorEntry, InterferenceEntry};
pub use self::latest::{DecisionEntry, Latest, ModelLatest};
use self::load::LoadWatch;
pub use self::lost_devices::LostDevice;
use self::lost_devices::LostDevices;
pub use self::message::{Effect, Event, LoadReport};
use self::operator_plan::OperatorPlan;
pub use self::operator_plan::{AcceptedPlan, InForce};
pub use self::plan_request::{NoPlan, PlanRequest, PlanResponse, Proposed};
pub use self::planning::{InitialGpulet, Model, PlanRejected, Planned, PlanningInputs, StageOf, Targets};
pub use self::profile_correction::ProfileCorrection;
use crate::id::{DeviceId, ProposalId};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::rollout::{self, OptionsError, Outcome, Rollout, RolloutOptions};
use crate::scaling::Autoscaler;
use crate::time::Micros;
use crate::validate::validate;

/// Pause after a plan that could not be made or carried out; microseconds.
const PAUSE: Micros = Micros(10_000_000);

/// Options of a control loop.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlOptions {
    /// Name of the scaler, one of [`crate::scaling::SCALERS`].
    pub scaling: String,
    /// Microseconds without a request after which a model is removed from its gpulets; without a value, models stay.
    pub idle_us: Option<Micros>,
    /// Microseconds between two evaluations of the load.
    pub period_us: Micros,
    /// Whether plans use the learned interference instead of that of the inputs. It is learned in both cases.
    pub uses_learned: bool,
    /// Deadlines and bounds of changes.
    pub rollout: RolloutOptions,
}

/// The scaler, and the models and families that it was created for.
#[derive(Debug)]
struct Scaling {
    names: Vec<String>,
    scaler: Autoscaler,
}

/// The decisions of the control loop.
#[derive(Debug)]
pub struct Controller {
    options: ControlOptions,
    inputs: Arc<PlanningInputs>,
    rollout: Rollout,
    scaling: Option<Scaling>,
    /// Families at the last evaluation; empty if variants are planned as separate models.
    families: Vec<Family>,
    watch: LoadWatch,
    learning: InterferenceLearning,
    /// Corrections of profiles at the last evaluation.
    corrected: Vec<ProfileCorrection>,
    latest: Latest,
    /// Requests a second that the plan in force serves of each model.
    capacity: BTreeMap<String, f64>,
    /// The problem of the plan in force, or of the one that is being carried out.
    problem: Option<Problem>,
    /// Another plan is needed, whatever the load does.
    replan: bool,
    /// The last plan was that of the start, with all models on all gpulets. One for the load must follow.
    is_start_plan: bool,
    /// Plan requests so far; only the response to the last one counts.
    questions: u64,
    /// Models that were evicted because memory is short.
    evicted: BTreeSet<String>,
    not_before_us: Option<Micros>,
    operator_plan: OperatorPlan,
    change_time: ChangeTime,
    lost: LostDevices,
    /// Bytes that models outside the plans have, by device.
    reserved: BTreeMap<DeviceId, u64>,
    feedback: Feedback,
    /// A device was lost while the current proposal was carried out, so that the next plan must not wait.
    lost_since: bool,
}

impl Controller {
    /// A controller with no plan in force.
    ///
    /// # Errors
    /// [`OptionsError`] where an option of the rollout is out of range.
    pub fn new(options: ControlOptions, inputs: PlanningInputs) -> Result<Self, OptionsError> {
        let rollout = Rollout::new(options.rollout.clone())?;
        Ok(Self {
            options,
            inputs: Arc::new(inputs),
            rollout,
            scaling: None,
            families: Vec::new(),
            watch: LoadWatch::default(),
            learning: InterferenceLearning::default(),
            corrected: Vec::new(),
            latest: Latest::default(),
            capacity: BTreeMap::new(),
            problem: None,
            replan: true,
            is_start_plan: false,
            questions: 0,
            evicted: BTreeSet::new(),
            not_before_us: None,
            operator_plan: OperatorPlan::default(),
            change_time: ChangeTime::default(),
            lost: LostDevices::default(),
            reserved: BTreeMap::new(),
            feedback: Feedback::default(),
            lost_since: false,
        })
    }

    /// Processes an event and appends its effects, in order.
    pub fn handle(&mut self, now: Micros, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Load(look) => self.look(now, look, effects),
            Event::Planned(answer) => self.planned(now, answer, effects),
            Event::OperatorPlan(accepted) => {
                self.operator_plan.begin(self.rollout.proposals().next());
                self.replan = false;
                self.begin(now, accepted.proposed, effects);
            }
            Event::Thaw => {
                self.operator_plan.release();
                self.replan = true;
                self.process(now, rollout::Event::Thaw, effects);
            }
            Event::Rollout(event) => self.process(now, event, effects),
        }
    }

    /// Devices that plans do without because no gpulet can be opened on them, by name.
    pub fn lost_devices(&self) -> impl Iterator<Item = &LostDevice> {
        self.lost.iter()
    }

    /// Families whose variants a policy chooses, as of the last evaluation.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Name of the policy for the variants of families; none if variants are planned as separate models.
    pub fn variant_policy(&self) -> Option<&'static str> {
        self.inputs.variants.name()
    }

    /// The inputs without lost devices and without memory that models outside the plans have.
    fn inputs_in_use(&self) -> Arc<PlanningInputs> {
        if self.lost.iter().next().is_none() && self.reserved.is_empty() {
            return Arc::clone(&self.inputs);
        }
        let mut inputs = PlanningInputs::clone(&self.inputs);
        for device in &mut inputs.devices {
            let reserved = self.reserved.get(&device.name).copied().unwrap_or_default();
            device.memory_bytes = device.memory_bytes.saturating_sub(reserved);
        }
        inputs.devices.retain(|device| !self.lost.contain(&device.name));
        inputs.start.retain(|start| !self.lost.contain(&start.device));
        Arc::new(inputs)
    }

    /// When a [`rollout::Event::Tick`] is due if nothing else happens before. The caller decides when it sends
    /// [`Event::Load`].
    pub fn next_wake(&self) -> Option<Micros> {
        self.rollout.next_wake()
    }

    /// The rollout, for queries.
    pub fn rollout(&self) -> &Rollout {
        &self.rollout
    }

    /// The last observations and decisions.
    pub fn latest(&self) -> &Latest {
        &self.latest
    }

    /// The problem of the plan in force, or of the one that is being carried out; none before the first.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// Whether an operator's plan is in force or being carried out, so that plans do not follow the load.
    pub fn has_operator_plan(&self) -> bool {
        self.operator_plan.holds()
    }

    /// Checks an operator's plan. The result is the argument of [`Event::OperatorPlan`].
    ///
    /// # Errors
    /// [`PlanRejected`] when gpulets are frozen or the plan is invalid.
    pub fn accept(&self, models: &[Model], plan: &Plan) -> Result<AcceptedPlan, PlanRejected> {
        if self.rollout.is_frozen() {
            return Err(PlanRejected::Frozen);
        }
        let lost =
            plan.gpulets.iter().find_map(|gpulet| self.lost.iter().find(|lost| lost.device == gpulet.device));
        if let Some(lost) = lost {
            let (device, reason) = (&lost.device, &lost.reason);
            return Err(PlanRejected::Unknown(format!("device `{device}` is lost: {reason}")));
        }
        self.inputs_in_use()
            .operator_plan(models, &self.targets(), plan)
            .map(|proposed| AcceptedPlan { proposed })
    }

    /// Handles the response to a plan request.
    fn planned(&mut self, now: Micros, answer: PlanResponse, effects: &mut Vec<Effect>) {
        let PlanResponse { number, result } = answer;
        let is_wanted = number == self.questions && self.may_plan();
        match result {
            // Since the request, a newer one, a change or an operator has taken its place.
            _ if !is_wanted => {}
            Ok(Proposed { evicted, again, planned, proposal, first }) => {
                if !evicted.is_empty() {
                    effects.push(Effect::Evicted { models: evicted.clone() });
                    self.evicted.extend(evicted);
                }
                self.replan = again;
                self.is_start_plan = first;
                self.begin(now, (planned, proposal), effects);
            }
            Err(NoPlan::Busy) => {}
            Err(NoPlan::Impossible(reason)) => self.pause(now, reason, effects),
        }
    }

    fn may_plan(&self) -> bool {
        !self.rollout.is_frozen() && self.rollout.is_idle() && !self.operator_plan.holds()
    }

    fn targets(&self) -> Targets {
        let names = self.scaling.iter().flat_map(|scaling| &scaling.names);
        let target = |name: &String| (name.clone(), self.latest.target(name).unwrap_or(0.0));
        let unplaced =
            names.clone().filter(|name| self.latest.is_unplaced(name) || self.evicted.contains(*name));
        let unplaced = unplaced.cloned().chain(self.evicted.iter().cloned()).collect();
        let variants = self.families.iter().flat_map(|family| &family.variants);
        let variants = variants.map(|variant| variant.name.clone()).collect();
        Targets { rates: names.map(target).collect(), unplaced, variants }
    }

    fn begin(
        &mut self,
        now: Micros,
        (planned, proposal): (Planned, rollout::Proposal),
        effects: &mut Vec<Effect>,
    ) {
        self.latest.planned(planned.share);
        self.problem = Some(planned.problem);
        self.change_time.begins(now);
        self.process(now, rollout::Event::Propose(proposal), effects);
    }

    fn pause(&mut self, now: Micros, reason: String, effects: &mut Vec<Effect>) {
        if self.latest.cannot_plan(&reason) {
            effects.push(Effect::NoPlan { reason });
        }
        self.replan = true;
        self.not_before_us = Some(now.after(PAUSE));
    }

    /// Passes one event to the rollout and handles the effects that concern the loop.
    fn process(&mut self, now: Micros, event: rollout::Event, effects: &mut Vec<Effect>) {
        let (mut said, mut lost) = (Vec::new(), Vec::new());
        self.rollout.handle(now, event, &mut said);
        for effect in said {
            match &effect {
                rollout::Effect::Ended { proposal, outcome } => {
                    let (proposal, outcome) = (*proposal, outcome.clone());
                    self.ended(now, proposal, &outcome, effects);
                }
                rollout::Effect::PlanNeeded { .. } => {
                    if self.operator_plan.lost() {
                        effects.push(Effect::OperatorPlanReleased);
                    }
                    self.replan = true;
                }
                rollout::Effect::CannotOpen { device, reason } => {
                    effects.push(Effect::DeviceLost(self.lost.lose(now, device, reason)));
                    self.lost_since = true;
                    lost.push((device.clone(), reason.clone()));
                }
                rollout::Effect::Step { .. }
                | rollout::Effect::Switch { .. }
                | rollout::Effect::Incident { .. } => {}
            }
            effects.push(Effect::Rollout(effect));
        }
        for (device, reason) in lost {
            self.process(now, rollout::Event::DeviceRemoved { device, reason }, effects);
        }
    }

    fn ended(&mut self, now: Micros, proposal: ProposalId, outcome: &Outcome, effects: &mut Vec<Effect>) {
        if *outcome == Outcome::Done {
            self.change_time.ended(now);
        }
        let plan = self.rollout.plan();
        self.check_outcome(&plan);
        for gpulet in &plan.gpulets {
            if self.lost.serves(&gpulet.device) {
                effects.push(Effect::DeviceBack { device: gpulet.device.clone() });
            }
        }
        self.latest.ended(outcome);
        let epoch = self.rollout.epoch();
        if let Some(answer) = self.operator_plan.ended(proposal, outcome, epoch, self.problem.as_ref(), &plan)
        {
            effects.push(Effect::OperatorPlanEnded { proposal, answer });
        }
        // What failed had a reason that is out of the plans now.
        let is_explained = std::mem::take(&mut self.lost_since);
        match outcome {
            Outcome::Done | Outcome::Unchanged | Outcome::Superseded => self.not_before_us = None,
            _ if is_explained => {
                self.replan = true;
                self.not_before_us = None;
            }
            Outcome::Refused { .. }
            | Outcome::Failed { .. }
            | Outcome::RolledBack { .. }
            | Outcome::Stopped { .. } => {
                self.replan = true;
                self.not_before_us = Some(now.after(PAUSE));
            }
        }
    }

    fn check_outcome(&mut self, plan: &Plan) {
        // None if the caller gave the rollout a plan of its own.
        let Some(problem) = &self.problem else { return };
        self.capacity.clear();
        for slot in validate(problem, plan).slots {
            *self.capacity.entry(slot.workload).or_default() += slot.capacity;
        }
    }
}
