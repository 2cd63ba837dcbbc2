//! Failed exports: which may be tried again, and when.

use std::error::Error;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};
use prost::Message;
use tonic::{Code, Status};

/// An export that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) retry: Retry,
    pub(super) text: String,
}

/// Whether a failed export may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// The collector refuses this batch, so it would do so again.
    No,
    /// After a pause that the client chooses.
    Backoff,
    /// After the pause that the collector asks for.
    After(Duration),
}

impl Failure {
    /// The collector does not answer, or not in time.
    pub(super) fn transport(text: impl Into<String>) -> Self {
        Self { retry: Retry::Backoff, text: text.into() }
    }

    /// A response over HTTP that is not a success.
    pub(super) fn http(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Self {
        let retry = match status.as_u16() {
            429 | 502 | 503 | 504 => retry_after(headers, now).map_or(Retry::Backoff, Retry::After),
            _ => Retry::No,
        };
        Self { retry, text: format!("the collector answered {status}") }
    }

    /// A status of gRPC.
    pub(super) fn grpc(status: &Status) -> Self {
        // The collector's own statuses have no source.
        if let Some(source) = status.source() {
            return Self::transport(innermost(source));
        }
        let pause = retry_info(status.details());
        let retry = match (status.code(), pause) {
            (
                Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss,
                pause,
            ) => pause.map_or(Retry::Backoff, Retry::After),
            // The collector has recovered only if it says when to try again.
            (Code::ResourceExhausted, Some(pause)) => Retry::After(pause),
            _ => Retry::No,
        };
        Self { retry, text: format!("the collector answered {:?}: {}", status.code(), status.message()) }
    }
}

/// The cause of an error: the layers above it say only which operation failed.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// `Retry-After`, as seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// `google.rpc.Status`, as far as it is used.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

fn retry_info(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let info = status.details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
    Some(Duration::try_from(delay).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use std::time::UNIX_EPOCH;

    use super::*;

    fn http(status: u16, retry_after: Option<&'static str>) -> Retry {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
        }
        let now = UNIX_EPOCH + Duration::from_secs(784_111_770);
        Failure::http(StatusCode::from_u16(status).unwrap(), &headers, now).retry
    }

    #[test]
    fn responses_that_may_be_tried_again() {
        for status in [429, 502, 503, 504] {
            assert_eq!(http(status, None), Retry::Backoff, "{status}");
        }
        for status in [301, 400, 401, 403, 404, 413, 500, 501] {
            assert_eq!(http(status, Some("1")), Retry::No, "{status}");
        }
        assert_eq!(http(503, Some("7")), Retry::After(Duration::from_secs(7)));
        assert_eq!(http(503, Some("Sun, 06 Nov 1994 08:49:37 GMT")), Retry::After(Duration::from_secs(7)));
        assert_eq!(http(503, Some("Sun, 06 Nov 1994 08:49:00 GMT")), Retry::After(Duration::ZERO));
        assert_eq!(http(503, Some("soon")), Retry::Backoff);
    }

    #[test]
    fn statuses_that_may_be_tried_again() {
        let retry = |code| Failure::grpc(&Status::new(code, "")).retry;
        for code in
            [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted, Code::OutOfRange, Code::DataLoss]
        {
            assert_eq!(retry(code), Retry::Backoff, "{code:?}");
        }
        for code in [
            Code::InvalidArgument,
            Code::Unauthenticated,
            Code::PermissionDenied,
            Code::Unimplemented,
            Code::Internal,
            Code::Unknown,
            Code::ResourceExhausted,
        ] {
            assert_eq!(retry(code), Retry::No, "{code:?}");
        }
    }

    #[test]
    fn a_status_may_say_when_to_try_again() {
        let delay = prost_types::Duration { seconds: 2, nanos: 500_000_000 };
        let info = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
        let detail =
            prost_types::Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(), value: info };
        let details = RpcStatus { details: vec![detail] }.encode_to_vec();
        for code in [Code::ResourceExhausted, Code::Unavailable] {
            let status = Status::with_details(code, "", details.clone().into());
            assert_eq!(Failure::grpc(&status).retry, Retry::After(Duration::from_millis(2500)));
        }
        assert_eq!(retry_info(b"nonsense"), None);
    }
}
