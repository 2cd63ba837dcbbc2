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
pub fn of(front: &Front, refusal: &Refusal, sent_id: Option<&[u8]>) -> Status {
    let id = front.ids.choose(sent_id);
    front.metrics.refused(Transport::Grpc, refusal.reason);
    errors::log(refusal, &id);
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
pub fn complete(
    front: &Front,
    mut response: Response<Body>,
    sent_id: Option<&HeaderValue>,
) -> Response<Body> {
    let headers = response.headers();
    let Some(code) = headers.get(STATUS) else { return response };
    let code = Code::from_bytes(code.as_bytes());
    if code == Code::Ok || headers.contains_key(REASON_HEADER) {
        return response;
    }
    let reason = reason_of(code);
    front.metrics.refused(Transport::Grpc, reason);
    let row = errors::row(reason);
    let id = front.ids.choose(sent_id.map(HeaderValue::as_bytes));
    tracing::debug!(reason = reason.label(), request_id = id, "request refused by the protocol layer");
    let headers = response.headers_mut();
    headers.insert(STATUS, HeaderValue::from(row.grpc as i32));
    headers.insert(REASON_HEADER, HeaderValue::from_static(reason.label()));
    if let Ok(id) = HeaderValue::try_from(id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}
