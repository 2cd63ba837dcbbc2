//! Refusals and the framework's own errors as gRPC statuses, from one table.

use http::{HeaderName, HeaderValue, Response};
use node::metrics::Transport;
use node::reason::{Reason, Refusal};
use tonic::body::Body;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::errors;
use crate::front::Front;
use crate::request_id;

const REASON: &str = "x-tessera-reason";
const NOT_READY: &str = "x-tessera-not-ready";
const REASON_HEADER: HeaderName = HeaderName::from_static(REASON);
const REQUEST_ID: HeaderName = HeaderName::from_static(request_id::HEADER);
const STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The status for a refusal: counted, logged, with reason, request id and, where it helps, `retry-after`.
pub fn of(front: &Front, refusal: &Refusal, id: &str) -> Status {
    front.metrics.refused(Transport::Grpc, refusal.reason);
    errors::log(refusal, id);
    let row = errors::row(refusal.reason);
    let mut metadata = MetadataMap::new();
    metadata.insert(REASON, MetadataValue::from_static(refusal.reason.label()));
    if let Ok(id) = id.parse() {
        metadata.insert(request_id::HEADER, id);
    }
    if let Some(seconds) = errors::retry_after_seconds(refusal) {
        metadata.insert("retry-after", MetadataValue::from(seconds));
    }
    Status::with_metadata(row.grpc, refusal.message.as_str(), metadata)
}

/// Tells why the server is not ready, for answers whose message has no place for it. At most 1 KiB of ASCII.
pub fn explain(metadata: &mut MetadataMap, reason: &str) {
    let ascii: String =
        reason.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).take(1024).collect();
    if let Ok(value) = ascii.parse() {
        metadata.insert(NOT_READY, value);
    }
}

/// The reason that stands for an error which the framework found while decoding.
pub fn reason_of(code: Code) -> Reason {
    match code {
        Code::OutOfRange | Code::ResourceExhausted => Reason::BodyTooLarge,
        Code::Unimplemented => Reason::Unsupported,
        Code::Cancelled => Reason::Cancelled,
        Code::DeadlineExceeded => Reason::SlowBody,
        Code::Unavailable => Reason::QueueFull,
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => Reason::Malformed,
    }
}

/// Errors that the framework answered by itself (a message over the limit, bytes that are no protobuf, an
/// unknown method) get the code and the metadata that the table gives them.
pub fn complete(front: &Front, mut response: Response<Body>, id: HeaderValue) -> Response<Body> {
    let headers = response.headers_mut();
    let code = headers.get(STATUS).map(|code| Code::from_bytes(code.as_bytes()));
    if !headers.contains_key(REQUEST_ID) {
        headers.insert(REQUEST_ID, id);
    }
    let Some(code) = code.filter(|&code| code != Code::Ok && !headers.contains_key(REASON_HEADER)) else {
        return response;
    };
    let reason = reason_of(code);
    front.metrics.refused(Transport::Grpc, reason);
    let row = errors::row(reason);
    let request_id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
    tracing::debug!(reason = reason.label(), request_id, "request refused by the protocol layer");
    headers.insert(STATUS, HeaderValue::from(row.grpc as i32));
    headers.insert(REASON_HEADER, HeaderValue::from_static(reason.label()));
    response
}
