//! The status of a node's plan, as the agent reports it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::node::ModelState;
use super::reconciler::Reconciler;
use crate::resources::condition::{self, Finding, READY};
use crate::resources::node_plan::{NodePlanStatus, Refusal};

/// Condition: the API server's plan is not older than the one in force.
const ACCEPTED: &str = "Accepted";
/// Condition: the plan in force survives a restart of the agent.
const STORED: &str = "Stored";
/// Longest message of a refusal, bytes.
const MESSAGE_MAX: usize = 1_024;

/// What is in force now. `before` are the conditions of the last status.
#[must_use]
pub fn status(
    reconciler: &Reconciler,
    store_error: Option<&str>,
    before: &[Condition],
    now: Timestamp,
) -> NodePlanStatus {
    let accepted = reconciler.accepted();
    let generation = accepted.map(|accepted| accepted.generation);
    let mut conditions = before.to_vec();
    let ready = ready(reconciler);
    condition::set(&mut conditions, Finding { kind: READY, generation, ..ready.finding() }, now);
    condition::set(&mut conditions, accepted_finding(reconciler).finding(), now);
    if accepted.is_some() {
        let stored = match store_error {
            None => Answer::new(Some(true), "Written", "the plan is on disk"),
            Some(error) => Answer::new(Some(false), "WriteFailed", error),
        };
        condition::set(&mut conditions, Finding { kind: STORED, generation, ..stored.finding() }, now);
    }
    let listing = reconciler.listing().cloned().unwrap_or_default();
    let ready = listing.models.into_iter().filter(|(_, state)| *state == ModelState::Ready);
    NodePlanStatus {
        observed_generation: generation,
        observed_epoch: i64::try_from(reconciler.epoch()).unwrap_or(i64::MAX),
        ready: ready.map(|(model, _)| model).collect(),
        refusals: refusals(reconciler),
        devices: listing.devices,
        capacity: listing.capacity,
        conditions,
    }
}

/// Whether a change must be reported soon: pickers and people wait for it.
#[must_use]
pub fn is_urgent(before: &NodePlanStatus, now: &NodePlanStatus) -> bool {
    let reasons = |status: &NodePlanStatus| -> Vec<(String, String)> {
        status.refusals.iter().map(|refusal| (refusal.model.clone(), refusal.reason.clone())).collect()
    };
    let conditions = |status: &NodePlanStatus| -> Vec<(String, String)> {
        status
            .conditions
            .iter()
            .map(|condition| (condition.type_.clone(), condition.status.clone()))
            .collect()
    };
    before.ready != now.ready
        || before.observed_generation != now.observed_generation
        || before.observed_epoch != now.observed_epoch
        || reasons(before) != reasons(now)
        || conditions(before) != conditions(now)
}

/// A condition without its type.
struct Answer {
    kind: &'static str,
    holds: Option<bool>,
    reason: &'static str,
    message: String,
    generation: Option<i64>,
}

impl Answer {
    fn new(holds: Option<bool>, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: ACCEPTED, holds, reason, message: message.into(), generation: None }
    }

    fn finding(&self) -> Finding<'_> {
        let Self { kind, holds, reason, message, generation } = self;
        Finding { kind, holds: *holds, reason, message, generation: *generation }
    }
}

fn ready(reconciler: &Reconciler) -> Answer {
    if let Some(failure) = reconciler.unreachable() {
        return Answer::new(None, "ServerUnreachable", failure.message.clone());
    }
    if reconciler.listing().is_none() {
        return Answer::new(None, "Starting", "the server was not listed yet");
    }
    let Some(accepted) = reconciler.accepted() else {
        return Answer::new(Some(false), "NoPlan", "no leader has written a plan for this node yet");
    };
    let (missing, extra) = (reconciler.missing(), reconciler.extra());
    if missing.is_empty() && extra.is_empty() {
        let models = accepted.plan.models.len();
        return Answer::new(Some(true), "InForce", format!("all {models} models of the plan are ready"));
    }
    let mut open = missing.iter().map(|planned| planned.model.as_str()).chain(extra.iter().copied());
    let refused = open.find_map(|model| reconciler.failures().get(model).map(|failure| (model, failure)));
    match refused {
        Some((model, failure)) => {
            Answer::new(Some(false), failure.reason, format!("model `{model}`: {}", failure.message))
        }
        None => {
            let (missing, extra) = (missing.len(), extra.len());
            let text = format!("{missing} models are to be loaded and {extra} to be unloaded");
            Answer::new(Some(false), "Applying", text)
        }
    }
}

fn accepted_finding(reconciler: &Reconciler) -> Answer {
    match (reconciler.refused(), reconciler.accepted()) {
        (Some((generation, outdated)), _) => Answer {
            generation: Some(*generation),
            ..Answer::new(Some(false), "OldEpoch", format!("the plan was refused: {outdated}"))
        },
        (None, Some(accepted)) => Answer {
            generation: Some(accepted.generation),
            ..Answer::new(
                Some(true),
                "InForce",
                format!("the plan of epoch {} is in force", accepted.plan.epoch),
            )
        },
        (None, None) => Answer::new(None, "NoPlan", "no leader has written a plan for this node yet"),
    }
}

fn refusals(reconciler: &Reconciler) -> Vec<Refusal> {
    let refusal = |(model, failure): (&String, &super::reconciler::Failure)| {
        let mut message = failure.message.clone();
        message.truncate(message.floor_char_boundary(MESSAGE_MAX));
        Refusal { model: model.clone(), reason: failure.reason.to_owned(), message }
    };
    reconciler.failures().iter().map(refusal).collect()
}
