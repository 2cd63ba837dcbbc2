//! One inference request over gRPC: limits, decode, infer, encode. On the hot path.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use node::metrics::Transport;
use node::reason::Refusal;
use node::tenants::RequestTenant;
use oip::proto::{ModelInferRequest, ModelInferResponse};
use oip::{InferRequest, InferResponse};
use tonic::{Request, Response, Status};

use super::{Arrived, status, timeout};
use crate::budget::{Holding, Reservation};
use crate::front::Front;
use crate::http::offload;
use crate::request_id;
use crate::service::{RequestContext, Timing};
use crate::tenant;
use crate::timing_headers;
use crate::trace::{SendEnd, Stage};

/// Typed contents larger than this are converted off the async threads.
const INLINE_BYTES: usize = 256 * 1024;

/// A response, its time by phase, and its share of the budget for bodies.
struct Answer {
    /// To send.
    message: ModelInferResponse,
    /// To report.
    timing: Timing,
    /// Budget to release once the client has read the response. `None` if the response is small.
    held: Option<Reservation>,
}

/// Answers a unary request.
pub async fn unary(
    front: &Arc<Front>,
    request: Request<ModelInferRequest>,
) -> Result<Response<ModelInferResponse>, Status> {
    let arrived = request.extensions().get::<Arrived>().copied();
    let Arrived { at: arrived, before } = arrived.unwrap_or_else(Arrived::now);
    // Another node wrote what was left of it.
    let transport_timeout = timeout::of(request.metadata()).map(|left| left.saturating_add(before));
    let tenant = tenant::of(front, request.metadata().as_ref(), request.extensions());
    let (metadata, _, message) = request.into_parts();
    let trace = front.trace(&message.model_name, Some(&message.model_version));
    if let Some(trace) = &trace {
        trace.reached(Stage::GrpcReadStart, arrived);
    }
    let id = request_id::of(metadata.as_ref());
    let context = RequestContext::new(id.clone(), arrived, Transport::Grpc, tenant);
    let span = front.span(metadata.as_ref());
    let gather = front.batch_mark(metadata.as_ref());
    let context = RequestContext { transport_timeout, gather, span, trace: trace.clone(), ..context };
    match answer(front, message, context).await {
        Ok(Answer { message, timing, mut held }) => {
            let mut response = Response::new(message);
            if let Some(trace) = trace {
                let send_end = SendEnd::new(trace, Stage::GrpcSendStart, Stage::GrpcSendEnd);
                held = Some(held.unwrap_or_else(|| front.bodies.reserve()).traced(send_end));
            }
            if let Some(held) = held {
                response.extensions_mut().insert(Holding::of(held));
            }
            timing_headers::insert(response.metadata_mut().as_mut(), &timing);
            Ok(response)
        }
        Err(refusal) => Err(status::of(front, &refusal, &id)),
    }
}

/// Answers one message of a unary call.
async fn answer(
    front: &Arc<Front>,
    message: ModelInferRequest,
    context: RequestContext,
) -> Result<Answer, Refusal> {
    let request = decode(front, message, &context).await?;
    if let Some(trace) = &context.trace {
        trace.reached(Stage::GrpcReadEnd, Instant::now());
    }
    let answered = front.infer(request, context).await?;
    let (message, held) = encode(front, answered.response)?;
    Ok(Answer { message, timing: answered.timing, held })
}

/// Decodes a message of a unary call or of a stream.
pub async fn decode(
    front: &Front,
    message: ModelInferRequest,
    context: &RequestContext,
) -> Result<InferRequest, Refusal> {
    let limits = front.limits.protocol;
    let (model, version) = (message.model_name.clone(), message.model_version.clone());
    let decoded = if typed_bytes(&message) <= INLINE_BYTES {
        oip::grpc::decode_infer(message, &limits)
    } else {
        Box::pin(offload(move || oip::grpc::decode_infer(message, &limits))).await?
    };
    decoded.map_err(|error| {
        let refusal = front.service.unknown_or(&model, Some(&version), Refusal::from(error));
        front.service.logged(context, &model, refusal)
    })
}

/// Encodes a response, and its share of the budget for bodies.
pub fn encode(
    front: &Front,
    response: InferResponse,
) -> Result<(ModelInferResponse, Option<Reservation>), Refusal> {
    let message = oip::grpc::encode_infer(response);
    let held = front.bodies.hold_answer(message.raw_output_contents.iter().map(Bytes::len).sum())?;
    Ok((message, held))
}

/// Approximate size of the contents to convert. Raw contents need no conversion.
fn typed_bytes(message: &ModelInferRequest) -> usize {
    let contents = message.inputs.iter().filter_map(|input| input.contents.as_ref());
    contents
        .map(|contents| {
            contents.bool_contents.len()
                + 4 * (contents.int_contents.len()
                    + contents.uint_contents.len()
                    + contents.fp32_contents.len())
                + 8 * (contents.int64_contents.len()
                    + contents.uint64_contents.len()
                    + contents.fp64_contents.len())
                + contents.bytes_contents.iter().map(|element| element.len() + 4).sum::<usize>()
        })
        .sum()
}

/// What the metadata of a stream says of its messages.
#[derive(Clone, Debug)]
pub struct StreamOrigin {
    /// The transport's timeout, if any.
    pub timeout: Option<Duration>,
    /// Whose requests they are.
    pub tenant: RequestTenant,
    /// Headers that name the trace.
    pub headers: HeaderMap,
}

/// Context of a message of a stream that came in now, with the id of the request.
pub fn stream_context(
    front: &Front,
    message: &ModelInferRequest,
    id: String,
    origin: &StreamOrigin,
) -> RequestContext {
    let arrived = Instant::now();
    let trace = front.trace(&message.model_name, Some(&message.model_version));
    if let Some(trace) = &trace {
        trace.reached(Stage::GrpcReadStart, arrived);
    }
    let context = RequestContext::new(id, arrived, Transport::Grpc, origin.tenant);
    RequestContext { transport_timeout: origin.timeout, span: front.span(&origin.headers), trace, ..context }
}
