//! The outcome of a request: answered correctly, rejected or failed.

use std::fmt;

use http::{HeaderMap, StatusCode};
use oip::metadata::ErrorBody;
use percent_encoding::percent_decode;

use crate::connection::{Failure, Reply};

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With the correct answer.
    Answered,
    /// The server rejected it under overload: too busy, draining, or too late.
    Refused { reason: String, message: String },
    /// It failed in another way.
    Failed { reason: String, message: String },
}

/// The header in which our server gives the reason.
const REASON: &str = "x-tessera-reason";
/// Upper bound on the bytes of a message.
const MESSAGE_MAX: usize = 500;

/// gRPC codes by number, as the protocol names them.
const GRPC_CODES: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
];

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered => f.write_str("answered"),
            Self::Refused { reason, message } | Self::Failed { reason, message } => match message.as_str() {
                "" => f.write_str(reason),
                message => write!(f, "{reason}: {message}"),
            },
        }
    }
}

impl Outcome {
    /// The answer is wrong.
    pub fn wrong(message: String) -> Self {
        Self::Failed { reason: "wrong_answer".to_owned(), message }
    }

    /// There is no response.
    pub fn of_failure(failure: &Failure) -> Self {
        Self::Failed { reason: failure.word().to_owned(), message: failure.to_string() }
    }

    /// The outcome of a REST response; none if it is an answer.
    pub fn of_http(reply: &Reply) -> Option<Self> {
        if reply.status == StatusCode::OK {
            return None;
        }
        let busy =
            [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
        let message = match serde_json::from_slice::<ErrorBody>(&reply.body) {
            Ok(told) => told.error.chars().take(MESSAGE_MAX).collect(),
            Err(_) => {
                let page = String::from_utf8_lossy(reply.body.get(..MESSAGE_MAX).unwrap_or(&reply.body));
                page.split_whitespace().collect::<Vec<_>>().join(" ")
            }
        };
        let or = || format!("http_{}", reply.status.as_u16());
        Some(Self::no(&reply.headers, or, busy.contains(&reply.status), message))
    }

    /// The outcome of a gRPC response; none if it is an answer.
    pub fn of_grpc(reply: &Reply) -> Option<Self> {
        let Some(code) = reply.headers.get("grpc-status") else {
            let message = format!("http status {} and no grpc-status", reply.status);
            return Some(Self::Failed { reason: "not_grpc".to_owned(), message });
        };
        let code = code.to_str().ok().and_then(|code| code.parse::<usize>().ok());
        if code == Some(0) {
            return None;
        }
        let name = code.and_then(|code| GRPC_CODES.get(code)).copied().unwrap_or("unknown");
        let busy = matches!(name, "resource_exhausted" | "unavailable" | "deadline_exceeded");
        let message =
            reply.headers.get("grpc-message").map(|message| decoded(message.as_bytes())).unwrap_or_default();
        Some(Self::no(&reply.headers, || format!("grpc_{name}"), busy, message))
    }

    fn no(headers: &HeaderMap, or: impl FnOnce() -> String, busy: bool, message: String) -> Self {
        let reason = headers.get(REASON).and_then(|reason| reason.to_str().ok()).map(str::to_owned);
        let reason = reason.unwrap_or_else(or);
        if busy { Self::Refused { reason, message } } else { Self::Failed { reason, message } }
    }
}

/// A `grpc-message`: percent-encoded UTF-8.
fn decoded(message: &[u8]) -> String {
    let bytes: Vec<u8> = percent_decode(message).take(MESSAGE_MAX).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn reply(status: u16, headers: &[(&'static str, &'static str)], body: &'static str) -> Reply {
        let headers = headers.iter().map(|&(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    fn refused(reason: &str, message: &str) -> Option<Outcome> {
        Some(Outcome::Refused { reason: reason.into(), message: message.into() })
    }

    fn failed(reason: &str, message: &str) -> Option<Outcome> {
        Some(Outcome::Failed { reason: reason.into(), message: message.into() })
    }

    #[test]
    fn statuses_are_told_apart() {
        assert_eq!(Outcome::of_http(&reply(200, &[], "")), None);
        let ours = reply(503, &[("x-tessera-reason", "queue_full")], r#"{"error": "full"}"#);
        assert_eq!(Outcome::of_http(&ours), refused("queue_full", "full"));
        assert_eq!(Outcome::of_http(&reply(429, &[], "")), refused("http_429", ""));
        assert_eq!(Outcome::of_http(&reply(400, &[], "no")), failed("http_400", "no"));
        let page = reply(404, &[], "<html>\n  not here\n");
        assert_eq!(Outcome::of_http(&page), failed("http_404", "<html> not here"));
        assert_eq!(Outcome::of_grpc(&reply(200, &[("grpc-status", "0")], "")), None);
        let busy = reply(200, &[("grpc-status", "14"), ("grpc-message", "try%20later%")], "");
        assert_eq!(Outcome::of_grpc(&busy), refused("grpc_unavailable", "try later%"));
        assert_eq!(
            Outcome::of_grpc(&reply(200, &[("grpc-status", "3")], "")),
            failed("grpc_invalid_argument", "")
        );
        assert_eq!(Outcome::of_grpc(&reply(200, &[("grpc-status", "x")], "")), failed("grpc_unknown", ""));
        let page = Outcome::of_grpc(&reply(404, &[], "<html>"));
        assert_eq!(page, failed("not_grpc", "http status 404 Not Found and no grpc-status"));
    }
}
