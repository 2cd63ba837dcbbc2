//! A plan that an operator puts in force by hand, and that stays whatever the load does.

use std::collections::BTreeMap;

use gpulet_core::check::check;
use gpulet_core::plan::Plan;
use gpulet_core::problem::Problem;
use gpulet_core::rollout::{Outcome, ProposalError};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::reason::{Reason, Refusal};

/// Where an operator waits for what becomes of a plan.
pub type Reply = oneshot::Sender<Result<PutInForce, Refusal>>;

/// Answer of `POST /v2/partition/plan`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PutInForce {
    /// Number of the table in force.
    epoch: u64,
    /// Whether anything had to be changed.
    changed: bool,
    /// What the plan does not hold, by the profiles and for the rates that are planned for; empty for a sound one.
    violations: Vec<String>,
}

/// Whether an operator's plan holds, and who waits for it.
#[derive(Default)]
pub struct ByHand {
    holds: bool,
    /// By the proposal's number: one may be under way and another wait for its end.
    asked: BTreeMap<u64, Asked>,
}

struct Asked {
    reply: Reply,
    /// Whether a plan of an operator's was in force before.
    held: bool,
}

impl ByHand {
    /// A proposal of this number is an operator's.
    pub fn begin(&mut self, proposal: u64, reply: Reply) {
        self.asked.insert(proposal, Asked { reply, held: self.holds });
        self.holds = true;
    }

    /// Whether plans stay as they are, whatever the load does.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Plans may follow the load again.
    pub fn give_up(&mut self) {
        self.holds = false;
    }

    /// The plan in force cannot hold any more, so that another is needed, unless an operator's is on its way. Says
    /// whether it was an operator's.
    pub fn lost(&mut self) -> bool {
        self.asked.is_empty() && std::mem::take(&mut self.holds)
    }

    /// A proposal ended; `plan` is what is in force.
    pub fn ended(
        &mut self,
        proposal: u64,
        outcome: &Outcome,
        epoch: u64,
        problem: Option<&Problem>,
        plan: &Plan,
    ) {
        let Some(asked) = self.asked.remove(&proposal) else { return };
        let answer = match outcome {
            Outcome::Done | Outcome::Unchanged => {
                let violations = problem.map(|problem| check(problem, plan).violations).unwrap_or_default();
                let violations = violations.iter().map(ToString::to_string).collect();
                Ok(PutInForce { epoch, changed: *outcome == Outcome::Done, violations })
            }
            Outcome::Superseded => Err(refusal("another plan took its place")),
            Outcome::Refused { refusal: why } => Err(refusal(&why.to_string())),
            Outcome::Failed { reason } | Outcome::RolledBack { reason } | Outcome::Stopped { reason } => {
                Err(refusal(reason))
            }
        };
        if answer.is_err() {
            self.holds &= asked.held || !self.asked.is_empty();
        }
        // Whoever asked may have left.
        let _ = asked.reply.send(answer);
    }
}

/// Tells whoever asked that the plan is not even tried.
pub fn refuse(reply: Reply, refusal: Refusal) {
    let _ = reply.send(Err(refusal));
}

/// Not now, or not here.
pub fn refusal(why: &str) -> Refusal {
    Refusal::new(Reason::PlanRefused, format!("the plan is not in force: {why}"))
}

/// Never on these devices.
pub fn impossible(error: &ProposalError) -> Refusal {
    Refusal::new(Reason::Malformed, format!("gpulets: {error}"))
}
