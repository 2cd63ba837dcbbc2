//! The outcome of a request: answered correctly, rejected or failed.

use http::{HeaderMap, StatusCode};
use oip::metadata::ErrorBody;

use crate::connection::{Failure, Reply};

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With the correct answer.
    Answered,
    /// The server rejected it under overload: too busy, draining, or too late.
    Refused { reason: String, said: String },
    /// It failed in another way.
    Failed { reason: String, said: String },
}

/// The header in which our server gives the reason.
const REASON: &str = "x-tessera-reason";
/// Upper bound on the bytes of a message.
const SAID_MAX: usize = 500;

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

impl Outcome {
    /// The answer is wrong.
    pub fn wrong(said: String) -> Self {
        Self::Failed { reason: "wrong_answer".to_owned(), said }
    }

    /// There is no response.
    pub fn of_failure(failure: &Failure) -> Self {
        Self::Failed { reason: failure.word().to_owned(), said: failure.to_string() }
    }

    /// The outcome of a REST response; none if it is an answer.
    pub fn of_http(reply: &Reply) -> Option<Self> {
        if reply.status == StatusCode::OK {
            return None;
        }
        let busy =
            [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
        let said = match serde_json::from_slice::<ErrorBody>(&reply.body) {
            Ok(told) => told.error.chars().take(SAID_MAX).collect(),
            Err(_) => {
                let page = String::from_utf8_lossy(reply.body.get(..SAID_MAX).unwrap_or(&reply.body));
                page.split_whitespace().collect::<Vec<_>>().join(" ")
            }
        };
        let or = || format!("http_{}", reply.status.as_u16());
        Some(Self::no(&reply.headers, or, busy.contains(&reply.status), said))
    }

    /// The outcome of a gRPC response; none if it is an answer.
    pub fn of_grpc(reply: &Reply) -> Option<Self> {
        let Some(code) = reply.headers.get("grpc-status") else {
            let said = format!("http status {} and no grpc-status", reply.status);
            return Some(Self::Failed { reason: "not_grpc".to_owned(), said });
        };
        let code = code.to_str().ok().and_then(|code| code.parse::<usize>().ok());
        if code == Some(0) {
            return None;
        }
        let name = code.and_then(|code| GRPC_CODES.get(code)).copied().unwrap_or("unknown");
        let busy = matches!(name, "resource_exhausted" | "unavailable" | "deadline_exceeded");
        let said = reply.headers.get("grpc-message").map(|said| decoded(said.as_bytes())).unwrap_or_default();
        Some(Self::no(&reply.headers, || format!("grpc_{name}"), busy, said))
    }

    fn no(headers: &HeaderMap, or: impl FnOnce() -> String, busy: bool, said: String) -> Self {
        let reason = headers.get(REASON).and_then(|reason| reason.to_str().ok()).map(str::to_owned);
        let reason = reason.unwrap_or_else(or);
        if busy { Self::Refused { reason, said } } else { Self::Failed { reason, said } }
    }
}

/// A `grpc-message`: percent-encoded UTF-8.
fn decoded(message: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(message.len());
    let mut rest = message;
    while let Some((&byte, behind)) = rest.split_first() {
        let coded = (byte == b'%').then(|| behind.get(..2)).flatten();
        let coded = coded.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(coded.unwrap_or(byte));
        rest = if coded.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    bytes.truncate(SAID_MAX);
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

    fn refused(reason: &str, said: &str) -> Option<Outcome> {
        Some(Outcome::Refused { reason: reason.into(), said: said.into() })
    }

    fn failed(reason: &str, said: &str) -> Option<Outcome> {
        Some(Outcome::Failed { reason: reason.into(), said: said.into() })
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
