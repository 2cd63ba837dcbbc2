//! The error table: what each [`Reason`] means on every surface.
//!
//! HTTP, gRPC, metrics and logs all read this one exhaustive match, so that a new reason cannot be added
//! without deciding what clients, dashboards and operators see. The snapshot test shows the whole table.

use std::time::Duration;

use http::StatusCode;
use oip::{ErrorKind, ProtocolError};
use tonic::Code;
use tracing::Level;

use crate::reason::{Reason, Refusal};

/// Whether sending the same request again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never: the request itself is at fault, or its time is over.
    No,
    /// On another server, or here after `Retry-After`.
    Elsewhere,
    /// At once.
    Yes,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// HTTP status. 499 is seen in logs and metrics only: its client is gone.
    pub http: StatusCode,
    /// gRPC status code.
    pub grpc: Code,
    /// Value of the `reason` label and of the `x-tessera-reason` header.
    pub label: &'static str,
    /// Level at which the front end logs it. Warnings are things an operator may act on.
    pub level: Level,
    /// May the client retry?
    pub retry: Retry,
}

/// Every reason, in the order of the enum.
pub const ALL: [Reason; 26] = [
    Reason::Malformed,
    Reason::Unsupported,
    Reason::Unauthenticated,
    Reason::PermissionDenied,
    Reason::UnknownModel,
    Reason::UnknownVersion,
    Reason::UnknownRegion,
    Reason::UnknownPath,
    Reason::MethodNotAllowed,
    Reason::BodyTooLarge,
    Reason::HeaderTooLarge,
    Reason::SlowBody,
    Reason::SlowReader,
    Reason::QueueFull,
    Reason::DeadlineUnmeetable,
    Reason::Shed,
    Reason::Expired,
    Reason::Draining,
    Reason::ModelNotReady,
    Reason::Cancelled,
    Reason::LaneDied,
    Reason::Quarantined,
    Reason::EngineFailed,
    Reason::PlanRefused,
    Reason::LoadFailed,
    Reason::Internal,
];

/// Position of a reason in [`ALL`]: for tables of pre-registered counters.
pub fn index(reason: Reason) -> usize {
    reason as usize
}

/// What a reason means on every surface.
pub fn row(reason: Reason) -> Row {
    let (http, grpc, label, level, retry) = match reason {
        Reason::Malformed => (400, Code::InvalidArgument, "malformed", Level::DEBUG, Retry::No),
        Reason::Unsupported => (400, Code::Unimplemented, "unsupported", Level::DEBUG, Retry::No),
        Reason::Unauthenticated => (401, Code::Unauthenticated, "unauthenticated", Level::DEBUG, Retry::No),
        Reason::PermissionDenied => {
            (403, Code::PermissionDenied, "permission_denied", Level::DEBUG, Retry::No)
        }
        Reason::UnknownModel => (404, Code::NotFound, "unknown_model", Level::DEBUG, Retry::No),
        Reason::UnknownVersion => (404, Code::NotFound, "unknown_version", Level::DEBUG, Retry::No),
        Reason::UnknownRegion => (404, Code::NotFound, "unknown_region", Level::DEBUG, Retry::No),
        Reason::UnknownPath => (404, Code::Unimplemented, "unknown_path", Level::DEBUG, Retry::No),
        Reason::MethodNotAllowed => (405, Code::Unimplemented, "method_not_allowed", Level::DEBUG, Retry::No),
        Reason::BodyTooLarge => (413, Code::ResourceExhausted, "body_too_large", Level::DEBUG, Retry::No),
        Reason::HeaderTooLarge => (431, Code::ResourceExhausted, "header_too_large", Level::DEBUG, Retry::No),
        Reason::SlowBody => (408, Code::DeadlineExceeded, "slow_body", Level::DEBUG, Retry::Yes),
        Reason::SlowReader => (499, Code::Cancelled, "slow_reader", Level::DEBUG, Retry::Yes),
        Reason::QueueFull => (503, Code::Unavailable, "queue_full", Level::DEBUG, Retry::Elsewhere),
        Reason::DeadlineUnmeetable => {
            (503, Code::Unavailable, "deadline_unmeetable", Level::DEBUG, Retry::Elsewhere)
        }
        Reason::Shed => (503, Code::Unavailable, "shed", Level::DEBUG, Retry::Elsewhere),
        Reason::Expired => (504, Code::DeadlineExceeded, "expired", Level::DEBUG, Retry::No),
        Reason::Draining => (503, Code::Unavailable, "draining", Level::DEBUG, Retry::Elsewhere),
        Reason::ModelNotReady => (503, Code::Unavailable, "model_not_ready", Level::DEBUG, Retry::Elsewhere),
        Reason::Cancelled => (499, Code::Cancelled, "cancelled", Level::DEBUG, Retry::No),
        Reason::LaneDied => (503, Code::Unavailable, "lane_died", Level::WARN, Retry::Yes),
        Reason::Quarantined => (500, Code::Internal, "quarantined", Level::WARN, Retry::No),
        Reason::EngineFailed => (500, Code::Internal, "engine_failed", Level::WARN, Retry::No),
        Reason::PlanRefused => (409, Code::FailedPrecondition, "plan_refused", Level::DEBUG, Retry::Yes),
        Reason::LoadFailed => (500, Code::Internal, "load_failed", Level::WARN, Retry::No),
        Reason::Internal => (500, Code::Internal, "internal", Level::ERROR, Retry::No),
    };
    let http = StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Row { http, grpc, label, level, retry }
}

/// Seconds for `Retry-After`: what the refusal knows, at least 1; `None` where waiting does not help.
pub fn retry_after_seconds(refusal: &Refusal) -> Option<u64> {
    let row = row(refusal.reason);
    let asks_to_wait = matches!(row.http, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    asks_to_wait.then(|| {
        let wait = refusal.retry_after.unwrap_or(Duration::from_secs(1));
        wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
    })
}

/// Logs a refused request at its row's level.
pub fn log(refusal: &Refusal, request_id: &str) {
    let row = row(refusal.reason);
    let (reason, error) = (row.label, refusal.message.as_str());
    if row.level == Level::ERROR {
        tracing::error!(reason, request_id, error, "request failed");
    } else if row.level == Level::WARN {
        tracing::warn!(reason, request_id, error, "request failed");
    } else {
        tracing::debug!(reason, request_id, error, "request refused");
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
    use std::fmt::Write as _;

    #[test]
    fn the_whole_table_matches_its_snapshot() {
        let mut table = String::from("reason | http | grpc | label | level | retry\n");
        for reason in ALL {
            let row = row(reason);
            writeln!(
                table,
                "{reason:?} | {} | {:?} | {} | {} | {:?}",
                row.http.as_u16(),
                row.grpc,
                row.label,
                row.level,
                row.retry
            )
            .expect("a string takes all");
        }
        assert_eq!(table, include_str!("../tests/golden/error_table.txt"));
    }

    #[test]
    fn every_reason_is_listed_once_and_labels_are_unique() {
        let mut labels: Vec<_> = ALL.iter().map(|&reason| row(reason).label).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), ALL.len());
        assert!(ALL.windows(2).all(|pair| pair[0] < pair[1]), "in the order of the enum");
        assert_eq!(ALL.len(), Reason::Internal as usize + 1, "a reason is missing from ALL");
    }

    #[test]
    fn retry_after_is_whole_seconds_rounded_up_and_only_where_waiting_helps() {
        let mut refusal = Refusal::new(Reason::QueueFull, "full");
        assert_eq!(retry_after_seconds(&refusal), Some(1));
        refusal.retry_after = Some(Duration::from_millis(1001));
        assert_eq!(retry_after_seconds(&refusal), Some(2));
        refusal.retry_after = Some(Duration::ZERO);
        assert_eq!(retry_after_seconds(&refusal), Some(1));
        assert_eq!(retry_after_seconds(&Refusal::new(Reason::Malformed, "bad")), None);
    }

    #[test]
    fn a_clients_mistake_is_never_a_5xx() {
        for reason in ALL {
            let row = row(reason);
            if row.http.is_server_error() {
                assert!(
                    row.retry != Retry::No
                        || matches!(
                            reason,
                            Reason::Expired
                                | Reason::Quarantined
                                | Reason::EngineFailed
                                | Reason::LoadFailed
                                | Reason::Internal
                        ),
                    "{reason:?}"
                );
            }
        }
    }
}
