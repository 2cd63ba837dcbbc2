//! Responses: bodies without copies, and what every refusal carries.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::response::IntoResponse;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use node::metrics::Transport;
use node::reason::{Reason, Refusal};
use oip::metadata::ErrorBody;
use serde::Serialize;

use crate::budget::{Held, Holding, Reservation};
use crate::errors;
use crate::front::Front;
use crate::request_id;

/// Header with the reason word of the error table.
pub const REASON_HEADER: HeaderName = HeaderName::from_static("x-tessera-reason");
const REQUEST_ID: HeaderName = HeaderName::from_static(request_id::HEADER);
/// JSON's media type.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Body of an HTTP response.
pub enum HttpBody {
    /// Chunks that are sent unchanged.
    Chunks {
        /// The first.
        head: Option<Bytes>,
        /// Those after it.
        tail: std::vec::IntoIter<Bytes>,
    },
    /// From a handler behind the router.
    Routed(axum::body::Body),
    /// One that counts against the budget for bodies until it is taken.
    Held(Box<Held<HttpBody>>),
}

impl HttpBody {
    /// One chunk.
    pub fn full(bytes: Bytes) -> Self {
        Self::chunks(bytes, Vec::new())
    }

    /// Chunks, one after the other.
    pub fn chunks(head: Bytes, tail: Vec<Bytes>) -> Self {
        Self::Chunks { head: Some(head).filter(|head| !head.is_empty()), tail: tail.into_iter() }
    }

    /// The same body, which now gives the reservation back once it is taken.
    pub fn holding(self, held: Option<Reservation>) -> Self {
        match held {
            None => self,
            Some(held) => Self::Held(Box::new(Held::new(self, Holding::of(held)))),
        }
    }
}

impl Body for HttpBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Chunks { head, tail } => {
                let next = head.take().or_else(|| tail.find(|chunk| !chunk.is_empty()));
                Poll::Ready(next.map(|chunk| Ok(Frame::data(chunk))))
            }
            Self::Routed(body) => Pin::new(body).poll_frame(context),
            Self::Held(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Chunks { head, tail } => head.is_none() && tail.as_slice().iter().all(Bytes::is_empty),
            Self::Routed(body) => body.is_end_stream(),
            Self::Held(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Chunks { head, tail } => {
                SizeHint::with_exact(head.iter().chain(tail.as_slice()).map(|chunk| chunk.len() as u64).sum())
            }
            Self::Routed(body) => body.size_hint(),
            Self::Held(body) => body.size_hint(),
        }
    }
}

fn error_body(error: &str) -> Vec<u8> {
    serde_json::to_vec(&ErrorBody { error: error.to_owned() }).unwrap_or_default()
}

/// A JSON answer from a handler behind the router.
pub fn json(value: &impl Serialize) -> Result<axum::response::Response, Refused> {
    let body = serde_json::to_vec(value)
        .map_err(|error| Refusal::new(Reason::Internal, format!("cannot encode the response: {error}")))?;
    Ok(([(CONTENT_TYPE, JSON)], body).into_response())
}

/// An answer that says all with its status.
pub fn empty() -> axum::response::Response {
    ([(CONTENT_TYPE, JSON)], "").into_response()
}

/// Behind the router a refusal travels as an extension, and [`finish`] makes the real response of it.
pub struct Refused(Refusal);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> axum::response::Response {
        let mut response = errors::row(self.0.reason).http.into_response();
        response.extensions_mut().insert(self.0);
        response
    }
}

/// Completes a response from the router: refusals get their body and headers.
pub fn finish(front: &Front, mut response: axum::response::Response, id: HeaderValue) -> Response<HttpBody> {
    match response.extensions_mut().remove::<Refusal>() {
        None => match front.bodies.hold_answer(response.body().size_hint().lower() as usize) {
            Ok(held) => with_id(response.map(|body| HttpBody::Routed(body).holding(held)), id),
            Err(refusal) => refused(front, &refusal, &id),
        },
        Some(refusal) => {
            let mut refused = refused(front, &refusal, &id);
            if let Some(allow) = response.headers_mut().remove(ALLOW) {
                refused.headers_mut().insert(ALLOW, allow);
            }
            refused
        }
    }
}

/// Tells the client the id of its request.
pub fn with_id(mut response: Response<HttpBody>, id: HeaderValue) -> Response<HttpBody> {
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The response for a refusal: counted, logged, with reason, request id and, where it helps, `Retry-After`.
pub fn refused(front: &Front, refusal: &Refusal, id: &HeaderValue) -> Response<HttpBody> {
    front.metrics.refused(Transport::Http, refusal.reason);
    errors::log(refusal, id.to_str().unwrap_or_default());
    let row = errors::row(refusal.reason);
    let body = error_body(&refusal.message);
    let mut response = Response::new(HttpBody::full(body.into()));
    *response.status_mut() = row.http;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(REASON_HEADER, HeaderValue::from_static(refusal.reason.label()));
    headers.insert(REQUEST_ID, id.clone());
    if refusal.reason == Reason::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = errors::retry_after_seconds(refusal) {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A yes-or-no answer: 200 with a body for those who read one (KServe's client does), or 400 with a reason, as
/// the protocol has it (4xx is "no").
pub fn truth(holds: bool, yes: &'static str, otherwise: &str) -> axum::response::Response {
    if holds {
        return ([(CONTENT_TYPE, JSON)], yes).into_response();
    }
    (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, JSON)], error_body(otherwise)).into_response()
}
