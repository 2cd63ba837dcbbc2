//! `ModelStreamInfer`: many requests over one call. The responses of one model come in the order of its requests, and wait for
//! no other model. Requests to a decoupled model are answered in any order; the responses to one of them keep theirs.
//!
//! An error of one request travels in its own message and leaves the stream open. The requests in flight are
//! bounded: at the bound the stream is not read, and flow control holds the client back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use node::metrics::Transport;
use node::reason::{Reason, Refusal};
use oip::proto::infer_parameter::ParameterChoice;
use oip::proto::{InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::infer::{self, StreamOrigin};
use super::order::{Order, Position};
use super::{status, timeout};
use crate::budget::{Holding, Reservation};
use crate::errors;
use crate::front::Front;
use crate::request_id;
use crate::service::{RequestContext, Streamed};
use crate::tenant;
use crate::trace::Stage;

/// A response, and its share of the budget for bodies.
type Outgoing = Result<(ModelStreamInferResponse, Option<Reservation>), Status>;

/// What the client reads.
pub struct Answers {
    outgoing: mpsc::Receiver<Outgoing>,
    /// Takes over the budget of messages as they are encoded.
    holding: Holding,
}

impl Stream for Answers {
    type Item = Result<ModelStreamInferResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = ready!(this.outgoing.poll_recv(context));
        Poll::Ready(next.map(|next| {
            next.map(|(message, held)| {
                if let Some(held) = held {
                    this.holding.add(held);
                }
                message
            })
        }))
    }
}

/// Response parameter that marks the final response of a request to a decoupled model.
const FINAL_RESPONSE: &str = "triton_final_response";

/// Request parameter: whether the client wants an empty response for an end that comes without a response.
const ENABLE_EMPTY_FINAL_RESPONSE: &str = "triton_enable_empty_final_response";

/// Answers a stream.
pub fn bidirectional(
    front: &Arc<Front>,
    request: Request<Streaming<ModelInferRequest>>,
) -> Response<Answers> {
    let (answers, read) = mpsc::channel(1);
    let (metadata, extensions, messages) = request.into_parts();
    let id = request_id::of(metadata.as_ref());
    let timeout = timeout::of(&metadata);
    let tenant = tenant::of(front, metadata.as_ref(), &extensions);
    let origin = StreamOrigin { timeout, tenant, headers: metadata.into_headers() };
    let front = Arc::clone(front);
    tokio::spawn(async move {
        // When the client leaves, the answers' reader is dropped, and dropping the loop cancels all requests.
        tokio::select! {
            () = answers.closed() => {}
            () = run(&front, messages, &answers, origin, &id) => {}
        }
    });
    let holding = Holding::default();
    let mut response = Response::new(Answers { outgoing: read, holding: holding.clone() });
    response.extensions_mut().insert(holding);
    response
}

async fn run(
    front: &Arc<Front>,
    mut requests: Streaming<ModelInferRequest>,
    answers: &mpsc::Sender<Outgoing>,
    origin: StreamOrigin,
    stream_id: &str,
) {
    let mut in_flight = JoinSet::new();
    let mut messages: u64 = 0;
    let mut order = Order::new(front.limits.stream_requests);
    let mut sequences = Order::new(front.limits.stream_requests);
    let mut open = true;
    while open || !in_flight.is_empty() {
        tokio::select! {
            Some(done) = in_flight.join_next() => {
                if let Err(error) = done {
                    let refusal = Refusal::new(Reason::Internal, format!("the request's task ended: {error}"));
                    if answers.send(Ok((failed(front, String::new(), &refusal, stream_id), None))).await.is_err() {
                        return;
                    }
                }
            }
            message = requests.message(), if open && in_flight.len() < front.limits.stream_requests => match message {
                Ok(Some(message)) => {
                    messages += 1;
                    let request_id = format!("{stream_id}.{messages}");
                    let context = infer::stream_context(front, &message, request_id.clone(), &origin);
                    let front = Arc::clone(front);
                    let (answers, mut position) = (answers.clone(), Some(order.next(&message.model_name)));
                    let mut place = sequences.next_in_sequence(&message);
                    in_flight.spawn(async move {
                        place.reached().await;
                        let (id, to) = (message.id.clone(), (&answers, &mut position));
                        if let Err(refusal) = respond(&front, message, context, to).await {
                            if let Some(position) = &mut position {
                                position.reached().await;
                            }
                            let failed = failed(&front, id, &refusal, &request_id);
                            // The client may have left.
                            let _ = answers.send(Ok((failed, None))).await;
                        }
                        // The next request of the sequence follows.
                        drop(place);
                    });
                }
                Ok(None) => open = false,
                Err(error) => {
                    // Message boundaries are lost: the stream ends, with the table's code.
                    let reason = status::reason_of(error.code());
                    let refusal = Refusal::new(reason, error.message());
                    let _ = answers.send(Err(status::of(front, &refusal, stream_id))).await;
                    return;
                }
            },
        }
    }
}

/// Sends the responses to one message at its position. An error is the last response.
async fn respond(
    front: &Front,
    message: ModelInferRequest,
    context: RequestContext,
    (answers, position): (&mpsc::Sender<Outgoing>, &mut Option<Position>),
) -> Result<(), Refusal> {
    let (id, request_id) = (message.id.clone(), context.id.clone());
    let wants_end = matches!(
        message.parameters.get(ENABLE_EMPTY_FINAL_RESPONSE).and_then(|value| value.parameter_choice.as_ref()),
        Some(ParameterChoice::BoolParam(true))
    );
    let mut request = infer::decode(front, message, &context).await?;
    if let Some(trace) = &context.trace {
        trace.reached(Stage::GrpcReadEnd, Instant::now());
    }
    request.parameters.retain(|(name, _)| name != ENABLE_EMPTY_FINAL_RESPONSE);
    let model = request.model_name.clone();
    let mut responses = front.infer_stream(request, context).await?;
    if responses.is_decoupled() {
        *position = None;
    }
    while let Some(Streamed { response, last }) = responses.next().await {
        let answer = match response {
            Some(response) => match response.and_then(|response| infer::encode(front, response)) {
                Ok((message, held)) => (succeeded(message, last), held),
                Err(refusal) if last => return Err(refusal),
                Err(refusal) => (failed(front, id.clone(), &refusal, &request_id), None),
            },
            None if wants_end => {
                let end =
                    ModelInferResponse { id: id.clone(), model_name: model.clone(), ..Default::default() };
                (succeeded(end, last), None)
            }
            None => continue,
        };
        if let Some(position) = position {
            position.reached().await;
        }
        if answers.send(Ok(answer)).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn succeeded(mut response: ModelInferResponse, last: bool) -> ModelStreamInferResponse {
    let last = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(last)) };
    response.parameters.insert(FINAL_RESPONSE.to_owned(), last);
    ModelStreamInferResponse { error_message: String::new(), infer_response: Some(response) }
}

fn failed(front: &Front, id: String, refusal: &Refusal, request_id: &str) -> ModelStreamInferResponse {
    front.metrics.refused(Transport::Grpc, refusal.reason);
    errors::log(refusal, request_id);
    let response = ModelInferResponse { id, ..ModelInferResponse::default() };
    ModelStreamInferResponse { error_message: refusal.message.clone(), infer_response: Some(response) }
}
