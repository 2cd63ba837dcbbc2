//! Why a request was rejected or failed: the closed list that HTTP, gRPC, metrics and logs share.

use std::time::Duration;

use oip::{ErrorKind, ProtocolError};
use router::RecordKey;
use telemetry::Outcome;

/// Declares [`Reason`]: each reason with its label.
macro_rules! reasons {
    ($(#[doc = $about:literal] $reason:ident, $label:literal;)+) => {
        /// Ways in which a request ends without a result.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $(#[doc = $about] $reason,)+
        }

        impl Reason {
            /// Every reason, in the order of the enum.
            pub const ALL: [Self; 39] = [$(Self::$reason),+];

            /// Position in [`Reason::ALL`]: for tables of pre-registered counters.
            pub fn index(self) -> usize {
                self as usize
            }

            /// What happened, in one sentence.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$reason => $about.trim_ascii(),)+
                }
            }

            /// Value of the `reason` label of metrics and logs, and of the `x-tessera-reason` header.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$reason => $label,)+
                }
            }
        }
    };
}

reasons! {
    /// Body, header, parameter, datatype or shape is wrong.
    Malformed, "malformed";
    /// The request asks for something that this server does not offer (a parameter, an extension).
    Unsupported, "unsupported";
    /// No or bad credentials.
    Unauthenticated, "unauthenticated";
    /// Known caller, not allowed.
    PermissionDenied, "permission_denied";
    /// The admin listener was addressed by a name that is not its own, or by a page of another site.
    HostRefused, "host_refused";
    /// No such model.
    UnknownModel, "unknown_model";
    /// The model has no such version.
    UnknownVersion, "unknown_version";
    /// No such shared-memory region.
    UnknownRegion, "unknown_region";
    /// The sequence was not started, or it ended early and must start again.
    UnknownSequence, "unknown_sequence";
    /// The request is not in the log of requests.
    UnknownRequest, "unknown_request";
    /// No such job, or it belongs to another tenant.
    UnknownJob, "unknown_job";
    /// The job has ended.
    JobEnded, "job_ended";
    /// The path is unknown.
    UnknownPath, "unknown_path";
    /// The path exists and does not take this method.
    MethodNotAllowed, "method_not_allowed";
    /// Body over the limit, also after decompression.
    BodyTooLarge, "body_too_large";
    /// Request line and headers over the limit.
    HeaderTooLarge, "header_too_large";
    /// The body did not arrive in time.
    SlowBody, "slow_body";
    /// The client did not read its response in time.
    SlowReader, "slow_reader";
    /// The queue of this model and class is full, or the memory for queued tensors is.
    QueueFull, "queue_full";
    /// The deadline cannot be met; certain before the work was started.
    DeadlineUnmeetable, "deadline_unmeetable";
    /// Shed so that several other requests meet their deadlines.
    Shed, "shed";
    /// The tenant has used up its quota of device time or requests.
    Quota, "quota";
    /// The deadline passed while the request was queued.
    Expired, "expired";
    /// The server is shutting down.
    Draining, "draining";
    /// The model exists and is still loading, or is being unloaded.
    ModelNotReady, "model_not_ready";
    /// Another node has the model and could not be reached, or its connection broke.
    NodeUnreachable, "node_unreachable";
    /// The client disconnected.
    Cancelled, "cancelled";
    /// The lane that ran the request failed.
    LaneFailed, "lane_failed";
    /// Two lanes failed while they ran the request.
    Quarantined, "quarantined";
    /// The engine failed on a well-formed request.
    EngineFailed, "engine_failed";
    /// The model answered with an error without a more precise code.
    ModelUnknown, "model_unknown";
    /// The model answered that something does not exist.
    ModelNotFound, "model_not_found";
    /// The model answered that it cannot serve the request now.
    ModelUnavailable, "model_unavailable";
    /// The model answered that it does not offer what the request asks for.
    ModelUnsupported, "model_unsupported";
    /// The model answered that something exists already.
    ModelAlreadyExists, "model_already_exists";
    /// The model answered that the request was cancelled.
    ModelCancelled, "model_cancelled";
    /// An operator plan cannot be applied now.
    PlanRefused, "plan_refused";
    /// The configuration, or the files or settings of a requested model, cannot be loaded.
    LoadFailed, "load_failed";
    /// A bug in the server. Counted and logged.
    Internal, "internal";
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
    /// The router's decisions about the request, if it reached the router.
    pub record: Option<RecordKey>,
    /// Whether the request is in the log of requests.
    pub logged: bool,
}

impl Refusal {
    /// A refusal without a time to retry.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None, record: None, logged: false }
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

impl Reason {
    /// How a request ends for this reason.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Cancelled | Self::SlowReader => Outcome::Cancelled,
            Self::LaneFailed
            | Self::Quarantined
            | Self::EngineFailed
            | Self::ModelUnknown
            | Self::ModelNotFound
            | Self::ModelUnavailable
            | Self::ModelUnsupported
            | Self::ModelAlreadyExists
            | Self::ModelCancelled
            | Self::Internal => Outcome::Failed,
            _ => Outcome::Refused,
        }
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
