//! The service that Envoy calls for each request: `envoy.service.ext_proc.v3.ExternalProcessor`.
//!
//! A stream is one request. It ends for the picker when its response begins, or when the stream does.

use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::actor::{Handle, Held};
use crate::answers;
use crate::chooser::{Answer, Asked};
use crate::demand::Counter;
use crate::headers;
use crate::measures::malformed;
use crate::proto::ext_proc::external_processor_server::ExternalProcessor;
use crate::proto::ext_proc::processing_request::Request as Part;
use crate::proto::ext_proc::processing_response::Response as Reply;
use crate::proto::ext_proc::{
    HeaderMap, HeadersResponse, ProcessingRequest, ProcessingResponse, TrailersResponse,
};
use crate::refusal::Refusal;

/// A request that waits longer asks its gateway for more time. Gateways stop waiting for a picker that says nothing for 100 ms.
const QUIET_MAX: Duration = Duration::from_millis(40);
/// How long a gateway then waits at most. After that, it chooses itself.
const HOLD_MAX: Duration = Duration::from_secs(60);

/// An answer that is not there yet.
type Pending = Pin<Box<dyn Future<Output = (ProcessingResponse, Option<Held>)> + Send>>;

/// The service.
#[derive(Clone, Debug)]
pub struct Processor {
    /// The task that chooses.
    pub picker: Handle,
    /// What gateways ask for.
    pub demand: Counter,
    /// Ends streams whose request was answered.
    pub stop: CancellationToken,
}

/// One request.
struct Exchange {
    parts: Streaming<ProcessingRequest>,
    picker: Handle,
    demand: Counter,
    stop: CancellationToken,
    pending: Option<Pending>,
    held: Option<Held>,
    is_answered: bool,
}

impl Exchange {
    /// The reply to the next part of the request. `None`: the stream ends.
    async fn reply(&mut self) -> Option<Result<ProcessingResponse, Status>> {
        if let Some(pending) = self.pending.take() {
            return Some(Ok(self.answered(pending.await)));
        }
        let part = tokio::select! {
            () = self.stop.cancelled(), if self.is_answered => return None,
            part = self.parts.message() => part,
        };
        // A stream that the gateway resets is an ended one: its client left.
        let part = part.ok()??.request;
        let Some(part) = part else {
            return Some(Err(Status::invalid_argument("request: expected a known part of a request")));
        };
        Some(Ok(match part {
            Part::RequestHeaders(headers) => {
                let headers = headers.headers.unwrap_or_default();
                let mut pending: Pending =
                    Box::pin(choose(self.picker.clone(), self.demand.clone(), headers));
                match tokio::time::timeout(QUIET_MAX, &mut pending).await {
                    Ok(answer) => self.answered(answer),
                    Err(_) => {
                        self.pending = Some(pending);
                        answers::wait(HOLD_MAX)
                    }
                }
            }
            Part::ResponseHeaders(_) => {
                self.held = None;
                answers::pass(Reply::ResponseHeaders(HeadersResponse::default()))
            }
            Part::RequestBody(body) => answers::pass(Reply::RequestBody(answers::same_body(body))),
            Part::ResponseBody(body) => answers::pass(Reply::ResponseBody(answers::same_body(body))),
            Part::RequestTrailers(_) => answers::pass(Reply::RequestTrailers(TrailersResponse {})),
            Part::ResponseTrailers(_) => answers::pass(Reply::ResponseTrailers(TrailersResponse {})),
        }))
    }

    fn answered(&mut self, (reply, held): (ProcessingResponse, Option<Held>)) -> ProcessingResponse {
        (self.held, self.is_answered) = (held, true);
        reply
    }
}

async fn choose(picker: Handle, demand: Counter, headers: HeaderMap) -> (ProcessingResponse, Option<Held>) {
    let headers::Asked { grpc, model, runs, rows, timeout } = match headers::read(&headers) {
        Ok(read) => read,
        Err(message) => {
            malformed();
            let refusal = Refusal::malformed(message);
            return (answers::refuse(&refusal, headers::is_grpc(&headers)), None);
        }
    };
    if runs {
        demand.arrived(model.as_deref(), rows);
    }
    let name = model.clone().unwrap_or_default();
    let asked = Asked { key: 0, model, runs, rows, timeout, class: 0, is_asked: false };
    let (answer, held) = picker.pick(asked).await;
    let reply = match answer {
        Answer::Send { nodes, choice, .. } => answers::send(&nodes, choice.batch(), grpc),
        Answer::Refuse(reason) => answers::refuse(&Refusal::of(reason, &name), grpc),
    };
    (reply, held)
}

#[tonic::async_trait]
impl ExternalProcessor for Processor {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let exchange = Exchange {
            parts: request.into_inner(),
            picker: self.picker.clone(),
            demand: self.demand.clone(),
            stop: self.stop.clone(),
            pending: None,
            held: None,
            is_answered: false,
        };
        let replies = stream::unfold(exchange, |mut exchange| async move {
            let reply = exchange.reply().await?;
            Some((reply, exchange))
        });
        Ok(Response::new(Box::pin(replies)))
    }
}
