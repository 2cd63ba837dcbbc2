//! A request for a plan, with everything that a thread needs to compute it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Family, Model, Planned, PlanningInputs, Targets};
use crate::plan::Plan;
use crate::rollout::Proposal;
use crate::time::Micros;

/// A request for a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest {
    pub(super) number: u64,
    pub(super) inputs: Arc<PlanningInputs>,
    pub(super) models: Vec<Model>,
    pub(super) targets: Targets,
    pub(super) families: Vec<Family>,
    pub(super) asked_us: BTreeMap<String, Micros>,
    pub(super) current: Plan,
}

/// Why a plan request has no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoPlan {
    /// Models are loaded or unloaded just now: the plan is requested again at the next evaluation.
    #[error("models are loaded or unloaded just now")]
    Busy,
    /// Planning failed, with the reason. The loop requests another plan after a pause.
    #[error("{0}")]
    Impossible(String),
}

/// The result of a [`PlanRequest`].
#[derive(Clone, Debug, PartialEq)]
pub struct PlanResponse {
    pub(super) number: u64,
    /// The plan, or the reason why planning failed.
    pub result: Result<Proposed, NoPlan>,
}

/// A plan that may be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposed {
    /// The plan and what it was made for.
    pub planned: Planned,
    /// The proposal of the plan, with the memory that it takes.
    pub proposal: Proposal,
    /// Models that are evicted for it.
    pub evicted: BTreeSet<String>,
    /// Whether it only frees memory, so that another plan must follow.
    pub again: bool,
    /// Whether it is the first plan of the server.
    pub first: bool,
}

impl PlanResponse {
    /// The response to the same request with a failure instead.
    #[must_use]
    pub fn because(self, why: NoPlan) -> Self {
        Self { result: Err(why), ..self }
    }
}

impl PlanRequest {
    /// Computes the plan. The result is deterministic. The duration is that of the placement policy.
    pub fn answer(self) -> PlanResponse {
        PlanResponse { number: self.number, result: self.proposed().map_err(NoPlan::Impossible) }
    }

    /// A response without a plan, for the given reason.
    pub fn refused(&self, why: NoPlan) -> PlanResponse {
        PlanResponse { number: self.number, result: Err(why) }
    }

    /// The plan in force when the request was made.
    pub fn current(&self) -> &Plan {
        &self.current
    }

    fn proposed(self) -> Result<Proposed, String> {
        if self.inputs.devices.is_empty() {
            return Err("every device is lost".to_owned());
        }
        let first = self.current.gpulets.is_empty();
        // They got a gpulet because requests waited for them. The next plan chooses variants again.
        let waits =
            |name: &String| self.models.iter().any(|model| model.name == *name && model.is_waited_for);
        let has_waited = self.targets.variants.iter().any(waits);
        let (planned, evicted, again) = self.planned(first)?;
        let again = again || has_waited;
        let proposal = Proposal::new(&planned.plan, &planned.problem).map_err(|error| error.to_string())?;
        Ok(Proposed { planned, proposal, evicted, again, first })
    }

    fn planned(self, first: bool) -> Result<(Planned, BTreeSet<String>, bool), String> {
        let Self { inputs, models, targets, families, asked_us, current, .. } = self;
        let (planned, evicted) = inputs.plan_without(&models, &targets, &asked_us, |targets| {
            if !first {
                return inputs.plan((&models, &families), targets, Some(&current));
            }
            let found = inputs.initial_plan(&models, targets)?;
            let fits = Proposal::new(&found.plan, &found.problem).map(drop);
            fits.map(|()| found).map_err(|error| error.to_string())
        })?;
        // Old and new models do not fit together: this plan evicts, and the next one adds those that need the memory.
        if evicted.iter().all(|name| current.slots_of(name).next().is_none()) {
            return Ok((planned, evicted, false));
        }
        let mut remaining = targets;
        remaining.unplaced.extend(evicted.iter().cloned());
        let unplaced = models.iter().filter(|model| !model.has_place);
        remaining.unplaced.extend(unplaced.map(|model| model.name.clone()));
        let planned = inputs.plan((&models, &families), &remaining, Some(&current))?;
        Ok((planned, evicted, true))
    }
}
