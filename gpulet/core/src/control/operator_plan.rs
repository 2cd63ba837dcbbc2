//! A plan that an operator sets, and that stays in force whatever the load does.

use std::collections::BTreeMap;

use super::Planned;
use crate::id::{Epoch, ProposalId};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::rollout::{Outcome, Proposal};
use crate::validate::validate;

/// An operator's plan that passed all checks.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedPlan {
    pub(super) proposed: (Planned, Proposal),
}

/// The result of an operator's plan that is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// Epoch of the table in force.
    pub epoch: Epoch,
    /// Whether the plan differs from the previous one.
    pub changed: bool,
    /// Objectives and limits that the plan violates, by the profiles and at the planned rates; empty for a valid plan.
    pub violations: Vec<String>,
}

/// Whether an operator's plan is in force, and which ones are being carried out.
#[derive(Debug, Default)]
pub(super) struct OperatorPlan {
    holds: bool,
    /// By proposal, whether an operator's plan was in force before. One proposal may be under way while another waits.
    asked: BTreeMap<ProposalId, bool>,
}

impl OperatorPlan {
    /// Records that the proposal is an operator's plan.
    pub fn begin(&mut self, proposal: ProposalId) {
        self.asked.insert(proposal, self.holds);
        self.holds = true;
    }

    /// Whether an operator's plan keeps plans from following the load.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Releases the operator's plan: plans follow the load again.
    pub fn release(&mut self) {
        self.holds = false;
    }

    /// Handles that the plan in force can no longer stay. Releases it unless another operator's plan is being carried
    /// out. Returns whether an operator's plan was released.
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
