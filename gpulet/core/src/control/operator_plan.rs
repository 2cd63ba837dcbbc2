//! A plan that an operator sets, and that stays in force whatever the load does.

use std::collections::BTreeMap;

use super::Planned;
use crate::id::{Epoch, ProposalId};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::rollout::{Outcome, Proposal, ProposalError};
use crate::validate::validate;

/// An operator's plan that may be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedPlan {
    pub(super) proposed: (Planned, Proposal),
}

/// Why an operator's plan is not even tried.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanRejected {
    /// Gpulets are frozen.
    #[error("gpulets are frozen")]
    Frozen,
    /// It leaves out a model that has to be there, or asks for what lanes do not have: in words that name the key.
    #[error("{0}")]
    Malformed(String),
    /// There is nothing to hold it against: in words.
    #[error("{0}")]
    Unknown(String),
    /// It can never be in force on these devices.
    #[error(transparent)]
    Impossible(#[from] ProposalError),
}

/// An operator's plan is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// Number of the table in force.
    pub epoch: Epoch,
    /// Whether anything had to be changed.
    pub changed: bool,
    /// What the plan does not hold, by the profiles and for the rates that are planned for, in words; empty for a sound
    /// one.
    pub violations: Vec<String>,
}

/// Whether an operator's plan holds, and which are on their way.
#[derive(Debug, Default)]
pub(super) struct OperatorPlan {
    holds: bool,
    /// By the proposal's number, whether a plan of an operator's was in force before: one may be under way and another
    /// wait for its end.
    asked: BTreeMap<ProposalId, bool>,
}

impl OperatorPlan {
    /// A proposal of this number is an operator's.
    pub fn begin(&mut self, proposal: ProposalId) {
        self.asked.insert(proposal, self.holds);
        self.holds = true;
    }

    /// Whether plans stay as they are, whatever the load does.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Releases the operator's plan: plans follow the load again.
    pub fn give_up(&mut self) {
        self.holds = false;
    }

    /// The plan in force cannot hold any more, so that another is needed, unless an operator's is on its way. Says
    /// whether it was an operator's.
    pub fn lost(&mut self) -> bool {
        self.asked.is_empty() && std::mem::take(&mut self.holds)
    }

    /// Handles the end of a proposal; `plan` is in force. Returns the answer for the operator, if one requested it.
    pub fn ended(
        &mut self,
        proposal: ProposalId,
        outcome: &Outcome,
        epoch: Epoch,
        problem: Option<&Problem>,
        plan: &Plan,
    ) -> Option<Result<InForce, Outcome>> {
        let held_before = self.asked.remove(&proposal)?;
        let answer = match outcome {
            Outcome::Done | Outcome::Unchanged => {
                let violations =
                    problem.map(|problem| validate(problem, plan).violations).unwrap_or_default();
                let violations = violations.iter().map(ToString::to_string).collect();
                Ok(InForce { epoch, changed: *outcome == Outcome::Done, violations })
            }
            Outcome::Superseded
            | Outcome::Refused { .. }
            | Outcome::Failed { .. }
            | Outcome::RolledBack { .. }
            | Outcome::Stopped { .. } => Err(outcome.clone()),
        };
        if answer.is_err() {
            self.holds &= held_before || !self.asked.is_empty();
        }
        Some(answer)
    }
}
