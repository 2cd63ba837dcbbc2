//! Operator plans: the requests that wait for them, and the responses.

use std::collections::BTreeMap;

use gpulet_core::control::{InForce, PlanRejected};
use gpulet_core::id::{Epoch, ProposalId};
use gpulet_core::rollout::Outcome;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::reason::{Reason, Refusal};

/// Returns the result of an operator plan to the request that waits for it.
pub type Reply = oneshot::Sender<Result<PutInForce, Refusal>>;

/// Response of `POST /v2/partition/plan`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PutInForce {
    /// Epoch of the plan in force.
    epoch: Epoch,
    /// Whether the plan changed any gpulet.
    changed: bool,
    /// Violations of the plan, by the profiles and at the target rates. Empty for a sound plan.
    violations: Vec<String>,
}

impl From<InForce> for PutInForce {
    fn from(plan: InForce) -> Self {
        let InForce { epoch, changed, violations } = plan;
        Self { epoch, changed, violations }
    }
}

/// Waiting requests by proposal. One proposal may be in progress while another waits for its end.
#[derive(Default)]
pub struct Waiting(BTreeMap<ProposalId, Reply>);

impl Waiting {
    /// Registers the request that waits for a proposal.
    pub fn begin(&mut self, proposal: ProposalId, reply: Reply) {
        self.0.insert(proposal, reply);
    }

    /// Responds to the request that waits for this proposal, if there is one.
    pub fn ended(&mut self, proposal: ProposalId, answer: Result<InForce, Outcome>) {
        let Some(reply) = self.0.remove(&proposal) else { return };
        let answer = answer.map(PutInForce::from).map_err(|outcome| {
            refusal(&outcome.reason().unwrap_or_else(|| "another plan took its place".to_owned()))
        });
        // The client may have disconnected.
        let _ = reply.send(answer);
    }
}

/// Tells the client that the plan was rejected.
pub fn refuse(reply: Reply, refusal: Refusal) {
    let _ = reply.send(Err(refusal));
}

/// A refusal that says why the plan is not in force.
pub fn refusal(why: &str) -> Refusal {
    Refusal::new(Reason::PlanRefused, format!("the plan is not in force: {why}"))
}

/// Converts a rejected plan into a refusal for the client.
pub fn not_accepted(why: PlanRejected) -> Refusal {
    match why {
        PlanRejected::Frozen => refusal("gpulets are frozen: POST /v2/partition/thaw first"),
        PlanRejected::Malformed(reason) => Refusal::new(Reason::Malformed, reason),
        PlanRejected::Unknown(reason) => Refusal::new(Reason::PlanRefused, reason),
        PlanRejected::Impossible(error) => Refusal::new(Reason::Malformed, format!("gpulets: {error}")),
    }
}
