//! The error table: status codes, log level and retry advice of each [`Reason`].
//!
//! HTTP, gRPC and logs use this one exhaustive match, so a new reason cannot be added without a decision on what clients
//! and operators see. The snapshot test shows the whole table.

use std::time::Duration;

use http::StatusCode;
use node::reason::{Reason, Refusal};
use tonic::Code;
use tracing::Level;

/// Whether sending the same request again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never: the request is wrong or its deadline has passed.
    No,
    /// On another server, or here after `Retry-After`.
    Elsewhere,
    /// After `Retry-After`.
    Later,
    /// Here, without waiting.
    Yes,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// HTTP status. 499 appears in logs and metrics only, because its client has disconnected.
    pub http: StatusCode,
    /// gRPC status code.
    pub grpc: Code,
    /// Level at which the front end logs it. Warnings are things an operator may act on.
    pub level: Level,
    /// May the client retry?
    pub retry: Retry,
}

/// The row of a reason.
pub fn row(reason: Reason) -> Row {
    let (http, grpc, level, retry) = match reason {
        Reason::Malformed => (400, Code::InvalidArgument, Level::DEBUG, Retry::No),
        Reason::Unsupported => (400, Code::Unimplemented, Level::DEBUG, Retry::No),
        Reason::Unauthenticated => (401, Code::Unauthenticated, Level::DEBUG, Retry::No),
        Reason::PermissionDenied => (403, Code::PermissionDenied, Level::DEBUG, Retry::No),
        Reason::HostRefused => (403, Code::PermissionDenied, Level::DEBUG, Retry::No),
        Reason::UnknownModel => (404, Code::NotFound, Level::DEBUG, Retry::No),
        Reason::UnknownVersion => (404, Code::NotFound, Level::DEBUG, Retry::No),
        Reason::UnknownRegion => (404, Code::NotFound, Level::DEBUG, Retry::No),
        Reason::UnknownSequence => (400, Code::InvalidArgument, Level::DEBUG, Retry::No),
        Reason::UnknownRequest => (404, Code::NotFound, Level::DEBUG, Retry::No),
        Reason::UnknownJob => (404, Code::NotFound, Level::DEBUG, Retry::No),
        Reason::JobEnded => (409, Code::FailedPrecondition, Level::DEBUG, Retry::No),
        Reason::UnknownPath => (404, Code::Unimplemented, Level::DEBUG, Retry::No),
        Reason::MethodNotAllowed => (405, Code::Unimplemented, Level::DEBUG, Retry::No),
        Reason::BodyTooLarge => (413, Code::ResourceExhausted, Level::DEBUG, Retry::No),
        Reason::HeaderTooLarge => (431, Code::ResourceExhausted, Level::DEBUG, Retry::No),
        Reason::SlowBody => (408, Code::DeadlineExceeded, Level::DEBUG, Retry::Yes),
        Reason::SlowReader => (499, Code::Cancelled, Level::DEBUG, Retry::Yes),
        Reason::QueueFull => (503, Code::Unavailable, Level::DEBUG, Retry::Elsewhere),
        Reason::DeadlineUnmeetable => (503, Code::Unavailable, Level::DEBUG, Retry::Elsewhere),
        Reason::Shed => (503, Code::Unavailable, Level::DEBUG, Retry::Elsewhere),
        Reason::Quota => (429, Code::ResourceExhausted, Level::DEBUG, Retry::Later),
        Reason::Expired => (504, Code::DeadlineExceeded, Level::DEBUG, Retry::No),
        Reason::Draining => (503, Code::Unavailable, Level::DEBUG, Retry::Elsewhere),
        Reason::ModelNotReady => (503, Code::Unavailable, Level::DEBUG, Retry::Elsewhere),
        Reason::NodeUnreachable => (503, Code::Unavailable, Level::WARN, Retry::Elsewhere),
        Reason::Cancelled => (499, Code::Cancelled, Level::DEBUG, Retry::No),
        Reason::LaneFailed => (503, Code::Unavailable, Level::WARN, Retry::Yes),
        Reason::Quarantined => (500, Code::Internal, Level::WARN, Retry::No),
        Reason::EngineFailed => (500, Code::Internal, Level::WARN, Retry::No),
        // The codes of a model's own errors are Triton's.
        Reason::ModelUnknown => (400, Code::Unknown, Level::DEBUG, Retry::No),
        Reason::ModelNotFound => (404, Code::NotFound, Level::DEBUG, Retry::No),
        Reason::ModelUnavailable => (503, Code::Unavailable, Level::DEBUG, Retry::Elsewhere),
        Reason::ModelUnsupported => (501, Code::Unimplemented, Level::DEBUG, Retry::No),
        Reason::ModelAlreadyExists => (400, Code::AlreadyExists, Level::DEBUG, Retry::No),
        Reason::ModelCancelled => (400, Code::Cancelled, Level::DEBUG, Retry::No),
        Reason::PlanRefused => (409, Code::FailedPrecondition, Level::DEBUG, Retry::Yes),
        Reason::LoadFailed => (500, Code::Internal, Level::WARN, Retry::No),
        Reason::Internal => (500, Code::Internal, Level::ERROR, Retry::No),
    };
    let http = StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Row { http, grpc, level, retry }
}

/// Seconds for `Retry-After`: the refusal's own, at least 1. `None` if waiting does not help.
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
    let (reason, error) = (refusal.reason.label(), refusal.message.as_str());
    if row.level == Level::ERROR {
        tracing::error!(reason, request_id, error, "request failed");
    } else if row.level == Level::WARN {
        tracing::warn!(reason, request_id, error, "request failed");
    } else {
        tracing::debug!(reason, request_id, error, "request refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn the_whole_table_matches_its_snapshot() {
        let mut table = String::from("reason | http | grpc | label | level | retry\n");
        for reason in Reason::ALL {
            let row = row(reason);
            writeln!(
                table,
                "{reason:?} | {} | {:?} | {} | {} | {:?}",
                row.http.as_u16(),
                row.grpc,
                reason.label(),
                row.level,
                row.retry
            )
            .expect("a string takes all");
        }
        assert_eq!(table, include_str!("../tests/golden/error_table.txt"));
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
        for reason in Reason::ALL {
            let row = row(reason);
            if row.http.is_server_error() {
                assert!(
                    row.retry != Retry::No
                        || matches!(
                            reason,
                            Reason::Expired
                                | Reason::Quarantined
                                | Reason::EngineFailed
                                | Reason::ModelUnsupported
                                | Reason::LoadFailed
                                | Reason::Internal
                        ),
                    "{reason:?}"
                );
            }
        }
    }
}
