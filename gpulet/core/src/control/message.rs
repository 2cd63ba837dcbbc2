//! What happens to the loop, and what it asks for.

use std::collections::BTreeSet;

use super::{AcceptedPlan, BatchTotals, InForce, Model, ModelCounts, PlanRequest, PlanResponse};
use crate::id::ProposalId;
use crate::rollout::{self, Outcome};

/// A model as it is just now.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLoad {
    /// What is known of it.
    pub model: Model,
    /// What was counted of it.
    pub seen: ModelCounts,
}

/// The load at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Every model that takes requests.
    pub models: Vec<ModelLoad>,
    /// What gpulets in force ran so far.
    pub ran: Vec<BatchTotals>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoPlan {
    /// Models are loaded or unloaded just now: the plan is requested again at the next evaluation.
    #[error("models are loaded or unloaded just now")]
    Busy,
    /// In words; another is asked for after a pause.
    #[error("{0}")]
    Impossible(String),
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A report of the load: about once a period, and sooner where requests wait for a model without a gpulet.
    Load(LoadReport),
    /// The answer to a question.
    Planned(PlanResponse),
    /// An operator's plan, accepted by [`super::Controller::accept`] just before.
    OperatorPlan(AcceptedPlan),
    /// Plans follow the load again.
    Thaw,
    /// Something of the rollout's: steps, switches, faults, time, and freezing.
    Rollout(rollout::Event),
}

/// What the caller must do or know.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Find the answer ([`PlanRequest::answer`]), or why not now ([`PlanRequest::refused`]), and tell it.
    Plan(Box<PlanRequest>),
    /// As the rollout says. That a proposal ended, or that another plan is needed, was taken in here already.
    Rollout(rollout::Effect),
    /// An operator's plan ended.
    OperatorPlanEnded {
        /// The proposal's number.
        proposal: ProposalId,
        /// What became of it.
        answer: Result<InForce, Outcome>,
    },
    /// An operator's plan cannot hold any more, and others follow.
    OperatorPlanReleased,
    /// There is no plan, and gpulets stay as they are; told when the reason is news.
    NoPlan {
        /// Why, in words.
        reason: String,
    },
    /// Memory is short: these models are evicted from their gpulets.
    Evicted {
        /// Their names.
        models: BTreeSet<String>,
    },
}
