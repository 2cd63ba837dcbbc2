//! `POST /v2/models/M[/versions/V]/infer`: limits, decode, infer, encode. On the hot path.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use hyper::body::Body;
use node::reason::{Reason, Refusal};
use oip::binary::RawInput;
use oip::json::Encoded;
use oip::{InferRequest, InferResponse};

use super::body;
use super::compression::{self, offload};
use super::response::{HttpBody, JSON};
use super::route::Target;
use crate::budget::Reservation;
use crate::front::Front;
use crate::service::{RequestContext, Timing};
use crate::timing_headers;
use crate::trace::{SendEnd, Stage, Trace};

/// Length of the JSON part when binary data follows it.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// JSON longer than this is decoded, and outputs larger than this are printed, off the async threads.
const INLINE_JSON: usize = 128 * 1024;

/// Answers an inference request. One that is refused before it reaches its model is noted too.
pub async fn answer<B>(
    front: &Arc<Front>,
    target: Target<'_>,
    headers: &HeaderMap,
    body: B,
    mut context: RequestContext,
) -> Result<Response<HttpBody>, Refusal>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    context.gather = front.batch_mark(headers);
    context.trace = front.trace(target.model, target.version);
    if let Some(trace) = &context.trace {
        trace.reached(Stage::HttpRecvStart, context.arrived);
    }
    match read(front, target, headers, body, &context).await {
        Ok(sent) => run(front, target, headers, sent, context).await,
        Err(refusal) => Err(front.service.logged(&context, target.model, refusal)),
    }
}

/// A request, whether its outputs are binary unless it says otherwise, and its share of the budget for bodies.
type Sent = (InferRequest, bool, Reservation);

async fn read<B>(
    front: &Arc<Front>,
    target: Target<'_>,
    headers: &HeaderMap,
    body: B,
    context: &RequestContext,
) -> Result<Sent, Refusal>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    let json_length = json_length(headers)?;
    let coding = compression::of_request(headers)?;
    let limit = front.limits.protocol.body_bytes;
    let (mut body, mut held) =
        body::read(headers, body, &front.bodies, limit, front.limits.body_timeout).await?;
    if let Some(trace) = &context.trace {
        trace.reached(Stage::HttpRecvEnd, Instant::now());
    }
    if let Some(coding) = coding {
        (body, held) = Box::pin(compression::inflate(coding, body, held, limit)).await?;
    }
    let request = decode(front, target, body, json_length)
        .await
        .map_err(|refusal| front.service.unknown_or(target.model, target.version, refusal))?;
    let binary_default = request.binary_output || json_length == Some(0);
    Ok((request, binary_default, held))
}

async fn run(
    front: &Arc<Front>,
    target: Target<'_>,
    headers: &HeaderMap,
    (request, binary_default, held): Sent,
    context: RequestContext,
) -> Result<Response<HttpBody>, Refusal> {
    let trace = context.trace.clone();
    let answered = front.infer(request, context).await.map_err(|refusal| unary(front, target, refusal))?;
    // The request's tensors, which are slices of its body, were dropped by now.
    let held = held.into_answer(tensor_bytes(&answered.response))?;
    let encoded = encode(answered.response, binary_default).await?;
    let held = resized(front, held, encoded.body_len())?;
    respond(front, headers, encoded, (held, trace), &answered.timing).await
}

/// A refusal in the words of this protocol.
fn unary(front: &Front, target: Target<'_>, refusal: Refusal) -> Refusal {
    let decoupled = refusal.reason == Reason::ModelUnsupported
        && front.service.is_decoupled(target.model, target.version);
    if !decoupled {
        return refusal;
    }
    Refusal::new(
        Reason::ModelUnsupported,
        "HTTP end point doesn't support models with decoupled transaction policy",
    )
}

/// Bytes of the outputs that the body of the answer carries.
fn tensor_bytes(response: &InferResponse) -> usize {
    let carried = response.outputs.iter().filter(|(_, parameters)| parameters.shared_memory.is_none());
    carried.map(|(tensor, _)| tensor.data.len()).sum()
}

/// Adjusts the reservation to an answer of `bytes` bytes.
fn resized(front: &Front, held: Option<Reservation>, bytes: usize) -> Result<Option<Reservation>, Refusal> {
    match held {
        Some(held) => held.into_answer(bytes),
        None => front.bodies.hold_answer(bytes),
    }
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
    let mut values = headers.get_all(JSON_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits = value.to_str().ok().map(str::trim).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match (digits.and_then(|digits| digits.parse().ok()), values.next()) {
        (Some(length), None) => Ok(Some(length)),
        (_, Some(_)) => Err(Refusal::new(
            Reason::Malformed,
            "header inference-header-content-length: expected one, got several",
        )),
        (None, None) => Err(Refusal::new(
            Reason::Malformed,
            "header inference-header-content-length: expected the length of the JSON part in bytes",
        )),
    }
}

async fn decode(
    front: &Arc<Front>,
    target: Target<'_>,
    body: Bytes,
    json_length: Option<usize>,
) -> Result<InferRequest, Refusal> {
    let limits = front.limits.protocol;
    if json_length == Some(0) {
        return decode_raw(front, target, &body);
    }
    if json_length.unwrap_or(body.len()) <= INLINE_JSON {
        return Ok(oip::json::decode_infer(target.model, target.version, &body, json_length, &limits)?);
    }
    let (model, version) = (target.model.to_owned(), target.version.map(str::to_owned));
    let decoded =
        offload(move || oip::json::decode_infer(&model, version.as_deref(), &body, json_length, &limits));
    Ok(Box::pin(decoded).await??)
}

/// The body is the model's only input and nothing else.
fn decode_raw(front: &Front, target: Target<'_>, body: &Bytes) -> Result<InferRequest, Refusal> {
    let view = front.service.model(target.model, target.version)?;
    let [input] = view.signature.inputs.as_slice() else {
        return Err(Refusal::new(
            Reason::Malformed,
            format!(
                "header inference-header-content-length: 0 (a body without JSON) needs a model with one input, and \
                 `{}` has {}",
                view.name,
                view.signature.inputs.len()
            ),
        ));
    };
    let mut dims: Vec<i64> = input.dims.iter().map(|dim| dim.to_wire()).collect();
    if view.signature.max_batch > 0
        && let Some(batch) = dims.first_mut()
    {
        *batch = 1;
    }
    let raw = RawInput { name: &input.name, datatype: input.datatype, dims: &dims };
    let limits = &front.limits.protocol;
    Ok(oip::binary::decode_raw(target.model, target.version, raw, body, limits)?)
}

async fn encode(response: InferResponse, binary_default: bool) -> Result<Encoded, Refusal> {
    let printed: usize = response
        .outputs
        .iter()
        .filter(|(_, parameters)| {
            !parameters.binary.unwrap_or(binary_default) && parameters.shared_memory.is_none()
        })
        .map(|(tensor, _)| tensor.data.len())
        .sum();
    if printed <= INLINE_JSON {
        return Ok(oip::json::encode_infer(&response, binary_default)?);
    }
    Ok(Box::pin(offload(move || oip::json::encode_infer(&response, binary_default))).await??)
}

async fn respond(
    front: &Front,
    headers: &HeaderMap,
    encoded: Encoded,
    (mut held, trace): (Option<Reservation>, Option<Arc<Trace>>),
    timing: &Timing,
) -> Result<Response<HttpBody>, Refusal> {
    let Encoded { head, tail, json_len } = encoded;
    let wanted = compression::wanted(headers);
    let compressed = match wanted {
        None => None,
        Some(coding) => {
            let chunks = std::iter::once(&head).chain(&tail).cloned().collect();
            Box::pin(compression::deflate(coding, chunks)).await?.map(|bytes| (coding, bytes))
        }
    };
    if let Some((_, bytes)) = &compressed {
        held = resized(front, held, bytes.len())?;
    }
    let body = match &compressed {
        Some((_, bytes)) => HttpBody::full(bytes.clone()),
        None => HttpBody::chunks(head, tail),
    };
    if let Some(trace) = trace {
        let send_end = SendEnd::new(trace, Stage::HttpSendStart, Stage::HttpSendEnd);
        held = Some(held.unwrap_or_else(|| front.bodies.reserve()).traced(send_end));
    }
    let mut response = Response::new(body.holding(held));
    let out = response.headers_mut();
    out.insert(CONTENT_TYPE, if json_len.is_some() { BINARY } else { JSON });
    if let Some(length) = json_len {
        out.insert(JSON_LENGTH, HeaderValue::from(length));
    }
    if let Some((coding, _)) = compressed {
        out.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.as_str()));
        out.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    timing_headers::insert(out, timing);
    Ok(response)
}
