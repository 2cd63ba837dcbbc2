//! A plan that an operator puts in force by hand: who waits for it, and the words of the answer.

use std::collections::BTreeMap;

use gpulet_core::control::{InForce, PlanRejected};
use gpulet_core::id::{Epoch, ProposalId};
use gpulet_core::rollout::Outcome;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::reason::{Reason, Refusal};

/// Where an operator waits for what becomes of a plan.
pub type Reply = oneshot::Sender<Result<PutInForce, Refusal>>;

/// Answer of `POST /v2/partition/plan`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PutInForce {
    /// Number of the table in force.
    epoch: Epoch,
    /// Whether anything had to be changed.
    changed: bool,
    /// What the plan does not hold, by the profiles and for the rates that are planned for; empty for a sound one.
    violations: Vec<String>,
}

impl From<InForce> for PutInForce {
    fn from(plan: InForce) -> Self {
        let InForce { epoch, changed, violations } = plan;
        Self { epoch, changed, violations }
    }
}

/// Operators who wait, by the proposal's number: one may be under way and another wait for its end.
#[derive(Default)]
pub struct Waiting(BTreeMap<ProposalId, Reply>);

impl Waiting {
    /// A proposal of this number is an operator's.
    pub fn begin(&mut self, proposal: ProposalId, reply: Reply) {
        self.0.insert(proposal, reply);
    }

    /// A proposal ended.
    pub fn ended(&mut self, proposal: ProposalId, answer: Result<InForce, Outcome>) {
        let Some(reply) = self.0.remove(&proposal) else { return };
        let answer = answer.map(PutInForce::from).map_err(|outcome| {
            refusal(&outcome.reason().unwrap_or_else(|| "another plan took its place".to_owned()))
        });
        // Whoever asked may have left.
        let _ = reply.send(answer);
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

/// Why it is not even tried, for clients.
pub fn not_accepted(why: PlanRejected) -> Refusal {
    match why {
        PlanRejected::Frozen => refusal("gpulets are frozen: POST /v2/partition/thaw first"),
        PlanRejected::Malformed(reason) => Refusal::new(Reason::Malformed, reason),
        PlanRejected::Unknown(reason) => Refusal::new(Reason::PlanRefused, reason),
        PlanRejected::Impossible(error) => Refusal::new(Reason::Malformed, format!("gpulets: {error}")),
    }
}
