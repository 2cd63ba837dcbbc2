//! Submits requests to the router, and translates its rejections for clients.
//!
//! Hot path.

use gpulet::BatchError;
use models::engine::{ModelErrorCode, RunError};
use router::{Answer, Job, Rejection};
use router_core::{CorrelationId, Reason as CoreReason, TimeoutAction};

use super::Catalog;
use super::version::Loaded;
use crate::reason::{Reason, Refusal};

impl Catalog {
    /// Submits a request. A version without a lane is activated first, and again if it loses its lane at that moment.
    pub async fn submit(&self, loaded: &Loaded, job: Job) -> Result<Answer, Refusal> {
        let router = self.router();
        let sequence = job.sequence.as_ref().map(|step| step.id.clone());
        if !loaded.activation.may_deactivate() {
            return router
                .submit(job)
                .await
                .map_err(|rejection| refusal(loaded, sequence.as_ref(), &rejection));
        }
        let lost_at = job.deadline.filter(|_| job.timeout_action == TimeoutAction::Reject);
        loop {
            if !loaded.activation.is_active() {
                loaded.activation.activate(&loaded.name, lost_at).await?;
            }
            match router.submit(job.clone()).await {
                Err(rejection)
                    if rejection.reason == CoreReason::NoLane && !loaded.activation.is_active() => {}
                ended => return ended.map_err(|rejection| refusal(loaded, sequence.as_ref(), &rejection)),
            }
        }
    }
}

fn refusal(loaded: &Loaded, sequence: Option<&CorrelationId>, rejection: &Rejection) -> Refusal {
    let refusal = words(loaded, sequence, rejection);
    Refusal { record: rejection.record, ..refusal }
}

fn words(loaded: &Loaded, sequence: Option<&CorrelationId>, rejection: &Rejection) -> Refusal {
    use CoreReason as Core;
    let name = &loaded.name;
    let (reason, message) = match rejection.reason {
        Core::QueueFull => (Reason::QueueFull, format!("model `{name}`: its queue is full")),
        Core::MemoryFull => (Reason::QueueFull, "the memory for queued tensors is full".to_owned()),
        Core::Shed => (
            Reason::Shed,
            format!("model `{name}`: dropped so that several other requests meet their deadlines"),
        ),
        Core::DeadlineUnmeetable => {
            (Reason::DeadlineUnmeetable, format!("model `{name}`: the deadline cannot be met any more"))
        }
        Core::Quota => {
            let message = "the quota of the tenant is used up: retry later, or raise it in `[tenants.NAME]`";
            let retry_after = rejection.retry_after;
            return Refusal { retry_after, ..Refusal::new(Reason::Quota, message) };
        }
        Core::DeadlinePassed => {
            (Reason::Expired, format!("model `{name}`: the deadline passed in the queue"))
        }
        Core::Draining => {
            (Reason::Draining, "the server is shutting down: send requests elsewhere".to_owned())
        }
        Core::UnknownModel | Core::NoLane => {
            (Reason::ModelNotReady, format!("model `{name}` is not being served"))
        }
        Core::BatchTooLarge => (Reason::Malformed, format!("model `{name}`: the batch is too large")),
        Core::ClientDisconnected => (Reason::Cancelled, "the client disconnected".to_owned()),
        Core::LaneFailed => {
            (Reason::LaneFailed, format!("model `{name}`: the lane that ran the request failed"))
        }
        Core::LaneFailedTwice => (
            Reason::Quarantined,
            format!("model `{name}`: the lane that ran the request failed twice, so it is not run again"),
        ),
        Core::EngineFailed => return engine_refusal(name, rejection.error.as_ref()),
        Core::SequenceNotStarted => {
            let id = sequence.map(ToString::to_string).unwrap_or_default();
            let reason = "must specify the START flag on the first request of the sequence";
            (
                Reason::UnknownSequence,
                format!("inference request for sequence {id} to model '{name}' {reason}"),
            )
        }
        Core::SequenceEnded => (
            Reason::UnknownSequence,
            format!(
                "model `{name}`: the sequence ended, because an earlier request of it did not run or the model was unloaded"
            ),
        ),
        Core::Answered | Core::IdInUse => (Reason::Internal, format!("router: {rejection}")),
    };
    Refusal::new(reason, message)
}

fn engine_refusal(name: &str, error: Option<&BatchError>) -> Refusal {
    match error {
        Some(BatchError::Run(error)) => model_refusal(name, error),
        Some(BatchError::Lane(what)) => Refusal::new(Reason::EngineFailed, format!("model `{name}`: {what}")),
        None => Refusal::new(Reason::EngineFailed, format!("model `{name}` failed")),
    }
}

/// The refusal of a request on which its model failed.
pub fn model_refusal(name: &str, error: &RunError) -> Refusal {
    let (reason, message) = match error {
        RunError::Input(what) => (Reason::Malformed, format!("model `{name}` refused the input: {what}")),
        RunError::Engine(what) => (Reason::EngineFailed, format!("model `{name}` failed: {what}")),
        RunError::DeviceFailed(what) => (Reason::LaneFailed, format!("model `{name}`: {what}")),
        // The model's own words reach the client unchanged, as with Triton.
        RunError::Model { code, message } => (model_reason(*code), message.clone()),
    };
    Refusal::new(reason, message)
}

fn model_reason(code: ModelErrorCode) -> Reason {
    match code {
        ModelErrorCode::Unknown => Reason::ModelUnknown,
        ModelErrorCode::Internal => Reason::EngineFailed,
        ModelErrorCode::NotFound => Reason::ModelNotFound,
        ModelErrorCode::InvalidArgument => Reason::Malformed,
        ModelErrorCode::Unavailable => Reason::ModelUnavailable,
        ModelErrorCode::Unsupported => Reason::ModelUnsupported,
        ModelErrorCode::AlreadyExists => Reason::ModelAlreadyExists,
        ModelErrorCode::Cancelled => Reason::ModelCancelled,
    }
}
