//! Submits requests to the router, and translates its rejections for clients.
//!
//! Hot path.

use gpulet::BatchError;
use models::engine::RunError;
use router::{Answer, Job, Rejection};
use router_core::Reason as CoreReason;

use super::Catalog;
use super::version::Loaded;
use crate::reason::{Reason, Refusal};

impl Catalog {
    /// Submits a request. A version without a lane is activated first, and again if it loses its lane at that moment.
    pub async fn submit(&self, loaded: &Loaded, job: Job) -> Result<Answer, Refusal> {
        let router = self.router();
        if !loaded.activation.may_deactivate() {
            return router.submit(job).await.map_err(|rejection| refusal(loaded, &rejection));
        }
        loop {
            if !loaded.activation.is_active() {
                loaded.activation.activate(&loaded.name, job.deadline).await?;
            }
            match router.submit(job.clone()).await {
                Err(rejection)
                    if rejection.reason == CoreReason::NoLane && !loaded.activation.is_active() => {}
                ended => return ended.map_err(|rejection| refusal(loaded, &rejection)),
            }
        }
    }
}

fn refusal(loaded: &Loaded, rejection: &Rejection) -> Refusal {
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
        Core::Answered | Core::IdInUse => (Reason::Internal, format!("router: {rejection}")),
    };
    Refusal::new(reason, message)
}

fn engine_refusal(name: &str, error: Option<&BatchError>) -> Refusal {
    match error {
        Some(BatchError::Run(RunError::Input(what))) => {
            Refusal::new(Reason::Malformed, format!("model `{name}` refused the input: {what}"))
        }
        Some(BatchError::Run(RunError::Engine(what))) => {
            Refusal::new(Reason::EngineFailed, format!("model `{name}` failed: {what}"))
        }
        Some(BatchError::Run(RunError::DeviceFailed(what))) => {
            Refusal::new(Reason::LaneFailed, format!("model `{name}`: {what}"))
        }
        Some(BatchError::Lane(what)) => Refusal::new(Reason::EngineFailed, format!("model `{name}`: {what}")),
        None => Refusal::new(Reason::EngineFailed, format!("model `{name}` failed")),
    }
}
