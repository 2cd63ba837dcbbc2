//! Triton's generate extension: an inference request as a flat JSON object, whose members are inputs by name and parameters.
//!
//! `POST /v2/models/M[/versions/V]/generate` answers with one object; `/generate_stream` with server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue};
use node::metrics::Transport;
use node::reason::{Reason, Refusal};
use node::tenants::RequestTenant;
use oip::InferRequest;
use oip::metadata::ErrorBody;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::body;
use super::response::{self, JSON, Refused};
use super::route::OwnedTarget;
use crate::flat_json::{flat, in_words_of_client, request};
use crate::front::Front;
use crate::request_id;
use crate::service::{RequestContext, Streamed};
use crate::tenant;
use crate::trace::Stage;

const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

pub async fn one(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    extensions: Extensions,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let tenant = tenant::of(&front, &headers, &extensions);
    let context = context(&front, &target, &headers, tenant);
    let request = read(&front, &target, &headers, sent, &context).await;
    let request = request.map_err(|refusal| front.service.logged(&context, &target.model, refusal))?;
    let mut responses = front.infer_stream(request, context).await?;
    let mut only = None;
    while let Some(Streamed { response, .. }) = responses.next().await {
        let Some(response) = response else { continue };
        if only.is_some() {
            return not_one(&front);
        }
        only = Some(response?);
    }
    match only {
        Some(response) => Ok(([(CONTENT_TYPE, JSON)], flat(&response)?).into_response()),
        None => not_one(&front),
    }
}

/// What Triton answers if a decoupled model gives no response or several. The status is Triton's too.
fn not_one(front: &Front) -> Result<Response, Refused> {
    front.metrics.refused(Transport::Http, Reason::ModelUnsupported);
    let error = "generate expects model to produce exactly 1 response, use generate stream for model that generates various \
                 number of responses";
    response::json(&ErrorBody { error: error.to_owned() })
}

/// Each response as one event. An error before the first response is an ordinary error, and a later one an event.
pub async fn stream(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    extensions: Extensions,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let tenant = tenant::of(&front, &headers, &extensions);
    let context = context(&front, &target, &headers, tenant);
    let request = read(&front, &target, &headers, sent, &context).await;
    let request = request.map_err(|refusal| front.service.logged(&context, &target.model, refusal))?;
    let (events, mut read) = mpsc::channel(1);
    tokio::spawn(async move {
        // When the client leaves, the reader is dropped, and dropping the responses cancels the request.
        tokio::select! {
            () = events.closed() => {}
            () = respond(&front, request, context, &events) => {}
        }
    });
    let first = match read.recv().await {
        Some(Err(refusal)) => return Err(refusal.into()),
        Some(Ok(event)) => Some(event),
        None => None,
    };
    let rest = ReceiverStream::new(read).map(|event| event.unwrap_or_else(|refusal| failed(&refusal)));
    let events = tokio_stream::iter(first).chain(rest).map(Ok::<_, Infallible>);
    Ok(([(CONTENT_TYPE, EVENTS)], axum::body::Body::from_stream(events)).into_response())
}

/// Sends the responses to one request as events.
async fn respond(
    front: &Front,
    request: InferRequest,
    context: RequestContext,
    events: &mpsc::Sender<Result<Bytes, Refusal>>,
) {
    let mut responses = match front.infer_stream(request, context).await {
        Ok(responses) => responses,
        Err(refusal) => {
            // The client may have left.
            let _ = events.send(Err(refusal)).await;
            return;
        }
    };
    while let Some(Streamed { response, .. }) = responses.next().await {
        let Some(response) = response else { continue };
        let event = response.and_then(|response| front.bodies.hold(event(&flat(&response)?)));
        if events.send(event).await.is_err() {
            return;
        }
    }
}

fn event(data: &[u8]) -> Bytes {
    [b"data: ".as_slice(), data, b"\n\n"].concat().into()
}

fn failed(refusal: &Refusal) -> Bytes {
    let body = ErrorBody { error: refusal.message.clone() };
    event(&serde_json::to_vec(&body).unwrap_or_default())
}

/// The context of a request that arrives now.
fn context(
    front: &Front,
    target: &OwnedTarget,
    headers: &HeaderMap,
    tenant: RequestTenant,
) -> RequestContext {
    let (arrived, id) = (Instant::now(), request_id::of(headers));
    let trace = front.trace(&target.model, target.version.as_deref());
    if let Some(trace) = &trace {
        trace.reached(Stage::HttpRecvStart, arrived);
    }
    RequestContext {
        trace,
        span: front.span(headers),
        ..RequestContext::new(id, arrived, Transport::Http, tenant)
    }
}

/// Reads the flat object as a request of the protocol.
async fn read(
    front: &Arc<Front>,
    target: &OwnedTarget,
    headers: &HeaderMap,
    sent: axum::body::Body,
    context: &RequestContext,
) -> Result<InferRequest, Refusal> {
    let limits = front.limits.protocol;
    let (body, _held) =
        body::read(headers, sent, &front.bodies, limits.body_bytes, front.limits.body_timeout).await?;
    if let Some(trace) = &context.trace {
        trace.reached(Stage::HttpRecvEnd, Instant::now());
    }
    let version = target.version.as_deref();
    let view = front.service.model(&target.model, version)?;
    let (names, request) = request(&view, &body)?;
    let request = oip::json::decode_infer(&target.model, version, &request.into(), None, &limits);
    request.map_err(|error| in_words_of_client(Refusal::from(error), &names))
}
