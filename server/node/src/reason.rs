//! Why a request was rejected or failed: the closed list that HTTP, gRPC, metrics and logs share.

use std::time::Duration;

use oip::{ErrorKind, ProtocolError};

/// Ways in which a request ends without a result.
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
    /// The path is unknown.
    UnknownPath,
    /// The path exists and does not take this method.
    MethodNotAllowed,
    /// Body over the limit, also after decompression.
    BodyTooLarge,
    /// Request line and headers over the limit.
    HeaderTooLarge,
    /// The body did not arrive in time.
    SlowBody,
    /// The client did not read its response in time.
    SlowReader,
    /// The queue of this model and class is full, or the memory for queued tensors is.
    QueueFull,
    /// The deadline cannot be met; certain before the work was started.
    DeadlineUnmeetable,
    /// Shed so that several other requests meet their deadlines.
    Shed,
    /// The deadline passed while the request was queued.
    Expired,
    /// The server is shutting down.
    Draining,
    /// The model exists and is still loading, or is being unloaded.
    ModelNotReady,
    /// The client disconnected.
    Cancelled,
    /// The lane that ran the request died.
    LaneDied,
    /// Two lanes died while they ran the request.
    Quarantined,
    /// The engine failed on a well-formed request.
    EngineFailed,
    /// An operator plan cannot be applied now.
    PlanRefused,
    /// The files or settings of a requested model cannot be loaded.
    LoadFailed,
    /// A bug in the server. Counted and logged.
    Internal,
}

impl Reason {
    /// Every reason, in the order of the enum.
    pub const ALL: [Self; 26] = [
        Self::Malformed,
        Self::Unsupported,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::UnknownModel,
        Self::UnknownVersion,
        Self::UnknownRegion,
        Self::UnknownPath,
        Self::MethodNotAllowed,
        Self::BodyTooLarge,
        Self::HeaderTooLarge,
        Self::SlowBody,
        Self::SlowReader,
        Self::QueueFull,
        Self::DeadlineUnmeetable,
        Self::Shed,
        Self::Expired,
        Self::Draining,
        Self::ModelNotReady,
        Self::Cancelled,
        Self::LaneDied,
        Self::Quarantined,
        Self::EngineFailed,
        Self::PlanRefused,
        Self::LoadFailed,
        Self::Internal,
    ];

    /// Position in [`Reason::ALL`]: for tables of pre-registered counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Value of the `reason` label of metrics and logs, and of the `x-tessera-reason` header.
    pub fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unsupported => "unsupported",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::UnknownModel => "unknown_model",
            Self::UnknownVersion => "unknown_version",
            Self::UnknownRegion => "unknown_region",
            Self::UnknownPath => "unknown_path",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::BodyTooLarge => "body_too_large",
            Self::HeaderTooLarge => "header_too_large",
            Self::SlowBody => "slow_body",
            Self::SlowReader => "slow_reader",
            Self::QueueFull => "queue_full",
            Self::DeadlineUnmeetable => "deadline_unmeetable",
            Self::Shed => "shed",
            Self::Expired => "expired",
            Self::Draining => "draining",
            Self::ModelNotReady => "model_not_ready",
            Self::Cancelled => "cancelled",
            Self::LaneDied => "lane_died",
            Self::Quarantined => "quarantined",
            Self::EngineFailed => "engine_failed",
            Self::PlanRefused => "plan_refused",
            Self::LoadFailed => "load_failed",
            Self::Internal => "internal",
        }
    }
}

/// A request that ends without a result, as the client sees it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Which row of the error table applies.
    pub reason: Reason,
    /// What was wrong, where, and what would be right; lowercase, no full stop.
    pub message: String,
    /// Time after which a retry may succeed, if known.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal without a time to retry.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None }
    }
}

impl From<ProtocolError> for Refusal {
    fn from(error: ProtocolError) -> Self {
        let reason = match error.kind() {
            ErrorKind::Malformed => Reason::Malformed,
            ErrorKind::TooLarge => Reason::BodyTooLarge,
            ErrorKind::Unsupported => Reason::Unsupported,
            ErrorKind::BadOutput => Reason::EngineFailed,
        };
        Self::new(reason, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed_once_and_labels_are_unique() {
        let mut labels: Vec<_> = Reason::ALL.iter().map(|&reason| reason.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Reason::ALL.len());
        assert!(Reason::ALL.windows(2).all(|pair| pair[0] < pair[1]), "in the order of the enum");
        assert_eq!(Reason::ALL.len(), Reason::Internal as usize + 1, "a reason is missing from Reason::ALL");
    }
}
