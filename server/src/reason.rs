//! Why a request was refused or failed: the closed list that HTTP, gRPC, metrics and logs share.

use std::time::Duration;

/// One word for each way a request can end other than with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Body, header, parameter, datatype or shape is wrong.
    Malformed,
    /// The request asks for something that this server does not offer (a parameter, an extension).
    Unsupported,
    /// No or bad credentials.
    Unauthenticated,
    /// Known caller, not allowed.
    PermissionDenied,
    /// No such model.
    UnknownModel,
    /// The model has no such version.
    UnknownVersion,
    /// No such shared-memory region.
    UnknownRegion,
    /// The path names nothing that this server offers.
    UnknownPath,
    /// The path exists and does not take this method.
    MethodNotAllowed,
    /// Body over the limit, also after decompression.
    BodyTooLarge,
    /// Request line and headers over the limit.
    HeaderTooLarge,
    /// The body did not arrive in time.
    SlowBody,
    /// The client did not take its answer in time.
    SlowReader,
    /// The queue of this model and class is full, or the memory for queued tensors is.
    QueueFull,
    /// The deadline cannot be met; certain before the work was started.
    DeadlineUnmeetable,
    /// Given up so that several others could be answered in time.
    Shed,
    /// The deadline passed while the request was queued.
    Expired,
    /// The server is shutting down.
    Draining,
    /// The model exists and is still loading, or is being unloaded.
    ModelNotReady,
    /// The client left.
    Cancelled,
    /// The lane that ran the request died.
    LaneDied,
    /// Two lanes died while they ran the request.
    Quarantined,
    /// The engine failed on a well-formed request.
    EngineFailed,
    /// A plan by hand cannot be put in force now.
    PlanRefused,
    /// A model was asked for and its files or settings do not load.
    LoadFailed,
    /// Something that cannot happen did; counted and logged.
    Internal,
}

/// A request that ends without a result: what the client is told.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Which row of the error table applies.
    pub reason: Reason,
    /// What was wrong, where, and what would be right; lowercase, no full stop.
    pub message: String,
    /// When trying again may help, if that is known.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal without a time to retry.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None }
    }
}
