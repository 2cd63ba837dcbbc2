//! A plan that is wanted: the question with all that is needed to answer it, on whatever thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Model, NoPlan, Planned, PlanningInputs, Targets};
use crate::plan::Plan;
use crate::rollout::Proposal;
use crate::time::Micros;

/// A plan that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest {
    pub(super) number: u64,
    pub(super) inputs: Arc<PlanningInputs>,
    pub(super) models: Vec<Model>,
    pub(super) targets: Targets,
    pub(super) asked_us: BTreeMap<String, Micros>,
    pub(super) current: Plan,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanResponse {
    pub(super) number: u64,
    /// The plan, or why there is none.
    pub result: Result<Proposed, NoPlan>,
}

/// A plan that may be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposed {
    /// The plan and what it was made for.
    pub planned: Planned,
    /// The same, weighed.
    pub proposal: Proposal,
    /// Models that have to leave for it.
    pub gone: BTreeSet<String>,
    /// Whether it only makes room, and another has to follow.
    pub again: bool,
    /// Whether it is the one that a server starts with.
    pub first: bool,
}

impl PlanResponse {
    /// The same question came to nothing, and why.
    #[must_use]
    pub fn because(self, why: NoPlan) -> Self {
        Self { result: Err(why), ..self }
    }
}

impl PlanRequest {
    /// Finds the answer: the same question has the same answer. May take as long as the placement policy does.
    pub fn answer(self) -> PlanResponse {
        PlanResponse { number: self.number, result: self.proposed().map_err(NoPlan::Impossible) }
    }

    /// It is not answered, and why.
    pub fn refused(&self, why: NoPlan) -> PlanResponse {
        PlanResponse { number: self.number, result: Err(why) }
    }

    /// The plan that is in force while it is asked.
    pub fn current(&self) -> &Plan {
        &self.current
    }

    fn proposed(self) -> Result<Proposed, String> {
        let first = self.current.gpulets.is_empty();
        let (planned, gone, again) = self.planned(first)?;
        let proposal = Proposal::new(&planned.plan, &planned.problem).map_err(|error| error.to_string())?;
        Ok(Proposed { planned, proposal, gone, again, first })
    }

    fn planned(self, first: bool) -> Result<(Planned, BTreeSet<String>, bool), String> {
        let Self { inputs, models, targets, asked_us, current, .. } = self;
        let (planned, gone) = inputs.plan_without(&models, &targets, &asked_us, |targets| {
            if !first {
                return inputs.plan(&models, targets, Some(&current));
            }
            let found = inputs.initial_plan(&models, targets)?;
            let fits = Proposal::new(&found.plan, &found.problem).map(drop);
            fits.map(|()| found).map_err(|error| error.to_string())
        })?;
        // Old and new do not fit in together: first those leave, and who needs their room comes with the next plan.
        if gone.iter().all(|name| current.slots_of(name).next().is_none()) {
            return Ok((planned, gone, false));
        }
        let mut room = targets;
        room.unplaced.extend(gone.iter().cloned());
        let homeless = models.iter().filter(|model| !model.has_place);
        room.unplaced.extend(homeless.map(|model| model.name.clone()));
        let planned = inputs.plan(&models, &room, Some(&current))?;
        Ok((planned, gone, true))
    }
}
