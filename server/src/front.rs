//! What HTTP and gRPC share: one inference path, limits, drain, and the answers about the server itself.
//!
//! The transports only decode and encode. Rules that hold for both are here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderMap;
use identity::Host;
use node::activity::Activity;
use node::metrics::FrontMetrics;
use node::reason::{Reason, Refusal};
use node::request_log::Span;
use oip::{InferRequest, InferResponse, Limits, TensorData};
use router::Gather;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::budget::BodyBudget;
use crate::classification;
use crate::fleet::{BatchMarks, Peers, SignalSource};
use crate::gate::Gate;
use crate::in_flight::{Entered, InFlight};
use crate::job_rows::ServerJobs;
use crate::reloads::Reloads;
use crate::request_id::RequestIds;
use crate::service::{Answered, RequestContext, Responses, Service, Streamed};
use crate::shared_memory::SharedMemory;
use crate::trace::{Trace, Traces};
#[cfg(feature = "tools")]
use crate::what_if::WhatIf;

/// Server name in metadata.
pub const SERVER_NAME: &str = "tessera";

/// Headers of the W3C standard Trace Context.
const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";

/// Pages that may follow the server at once.
pub const VIEWERS: usize = 32;

/// Bounds of the front end, from `[limits]`.
#[derive(Clone, Copy, Debug)]
pub struct FrontLimits {
    /// What the codecs enforce.
    pub protocol: Limits,
    /// Bytes of all HTTP bodies held at once.
    pub bodies: usize,
    /// Time for a body to arrive.
    pub body_timeout: Duration,
    /// Requests in flight on one gRPC stream.
    pub stream_requests: usize,
}

/// State of the front end. Every connection of the process shares it.
pub struct Front {
    /// Answers requests.
    pub service: Arc<Service>,
    /// Takes up changes of the configuration.
    pub reloads: Arc<Reloads>,
    /// Registered regions, if the extension is on.
    pub shared_memory: Option<SharedMemory>,
    /// Limits on bodies and messages.
    pub limits: FrontLimits,
    /// Bytes of bodies held.
    pub bodies: BodyBudget,
    /// Metrics that belong to no model.
    pub metrics: FrontMetrics,
    /// Ids for requests without one.
    pub ids: RequestIds,
    /// Traces of requests.
    pub traces: Traces,
    /// Who is let in.
    pub gate: Gate,
    /// Names of the paths that manage the server.
    pub admin_host: Arc<Host>,
    /// Tells other nodes and pickers what requests would meet here.
    pub signals: Arc<SignalSource>,
    /// Other nodes. `None`: this server is the only one, and no request costs more than this check.
    pub peers: Option<Peers>,
    /// Reads marks of batches. `None`: they are ignored.
    pub batch_marks: Option<BatchMarks>,
    /// Files whose rows run through models, if `jobs.folder` is set.
    pub jobs: Option<Arc<ServerJobs>>,
    /// What the server did lately.
    pub activity: Activity,
    /// Simulations of what would be.
    #[cfg(feature = "tools")]
    pub what_if: WhatIf,
    /// One permit for each page that may follow it.
    pub viewers: Arc<Semaphore>,
    leaving: AtomicBool,
    draining: CancellationToken,
    in_flight: Arc<InFlight>,
}

impl Front {
    /// A front end over a service.
    pub fn new(
        service: Arc<Service>,
        reloads: Arc<Reloads>,
        shared_memory: bool,
        limits: FrontLimits,
        traces: Traces,
        gate: Gate,
    ) -> Self {
        let metrics = FrontMetrics::new();
        let bodies = BodyBudget::new(limits.bodies, metrics.body_bytes.clone());
        let in_flight = InFlight::new(metrics.in_flight.clone());
        Self {
            signals: SignalSource::new(Arc::clone(&service), String::new()),
            peers: None,
            batch_marks: None,
            service,
            reloads,
            shared_memory: shared_memory.then(SharedMemory::default),
            limits,
            bodies,
            metrics,
            ids: RequestIds::default(),
            traces,
            gate,
            admin_host: Arc::default(),
            jobs: None,
            activity: Activity::default(),
            #[cfg(feature = "tools")]
            what_if: WhatIf::default(),
            viewers: Arc::new(Semaphore::new(VIEWERS)),
            leaving: AtomicBool::new(false),
            draining: CancellationToken::new(),
            in_flight: Arc::new(in_flight),
        }
    }

    /// The same with names under which browsers may manage the server.
    pub fn with_admin_names(self, names: impl IntoIterator<Item = String>) -> Self {
        Self { admin_host: Arc::new(Host::new(names)), ..self }
    }

    /// The same as a node with a name, next to other nodes.
    pub fn with_peers(self, name: String, peers: Option<Peers>) -> Self {
        Self { signals: SignalSource::new(Arc::clone(&self.service), name), peers, ..self }
    }

    /// The same with jobs.
    pub fn with_jobs(self, jobs: Option<ServerJobs>) -> Self {
        Self { jobs: jobs.map(Arc::new), ..self }
    }

    /// The same, with marks of batches if `is_on`.
    pub fn with_batch_marks(self, is_on: bool) -> Self {
        Self { batch_marks: is_on.then(BatchMarks::new), ..self }
    }

    /// The batch that a picker put a request with these headers into, if marks are on.
    pub fn batch_mark(&self, headers: &HeaderMap) -> Option<Gather> {
        self.batch_marks.as_ref()?.of(headers)
    }

    /// The trace of a request to a model, if this request is one to trace.
    pub fn trace(&self, model: &str, version: Option<&str>) -> Option<Arc<Trace>> {
        if !self.traces.on() {
            return None;
        }
        let version = version.filter(|version| !version.is_empty());
        let loaded = self.service.node.catalog().find(model, version).ok()?;
        self.traces.sample(model, loaded.version)
    }

    /// The span of a request with these headers, if requests are traced with OpenTelemetry. A client that sends several
    /// `traceparent` names no trace.
    pub fn span(&self, headers: &HeaderMap) -> Option<Arc<Span>> {
        let spans = self.service.node.requests().spans()?;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let several = headers.get_all(TRACE_PARENT).iter().nth(1).is_some();
        let parent = text(TRACE_PARENT).filter(|_| !several);
        let states = headers.get_all(TRACE_STATE).iter().filter_map(|value| value.to_str().ok());
        let state = parent.map(|_| states.collect::<Vec<_>>().join(","));
        Some(spans.of(parent, state.as_deref()))
    }

    /// Answers one decoded request. Dropping the future cancels it.
    pub async fn infer(
        &self,
        mut request: InferRequest,
        context: RequestContext,
    ) -> Result<Answered, Refusal> {
        let _in_flight = self.begin(&mut request, &context).await?;
        let ranking = classification::is_asked_for(request.outputs.as_deref());
        let Answered { response, timing } = self.service.infer(request, context).await?;
        Ok(Answered { response: self.complete(response, ranking).await?, timing })
    }

    /// Answers one decoded request with any number of responses, in order. A model that is not decoupled gives one.
    ///
    /// # Errors
    /// If the server drains, the model does not serve, or an input in shared memory cannot be read. Other errors are
    /// responses.
    pub async fn infer_stream(
        &self,
        mut request: InferRequest,
        context: RequestContext,
    ) -> Result<FrontResponses<'_>, Refusal> {
        let in_flight = self.begin(&mut request, &context).await?;
        let ranking = classification::is_asked_for(request.outputs.as_deref());
        let responses = self.service.infer_stream(request, context)?;
        Ok(FrontResponses { front: self, responses, ranking, _in_flight: in_flight })
    }

    async fn complete(&self, mut response: InferResponse, ranking: bool) -> Result<InferResponse, Refusal> {
        if ranking {
            self.rank(&mut response)?;
        }
        if let Some(memory) = &self.shared_memory
            && response.outputs.iter().any(|(_, parameters)| parameters.shared_memory.is_some())
        {
            Box::pin(memory.deliver(&mut response)).await?;
        }
        Ok(response)
    }

    /// True while the process serves.
    pub fn live(&self) -> bool {
        self.service.node.live()
    }

    /// Why the server is not ready; `None` when it is.
    pub fn not_ready(&self) -> Option<String> {
        if self.leaving() {
            return Some("the server is draining".to_owned());
        }
        self.service.node.not_ready()
    }

    /// True when the server takes requests and, under strict readiness, every requested model is ready.
    pub fn ready(&self) -> bool {
        self.not_ready().is_none()
    }

    /// Whether a model would take a request now.
    pub fn model_ready(&self, name: &str, version: Option<&str>) -> bool {
        !self.leaving() && self.service.model_ready(name, version)
    }

    /// Protocol extensions on offer.
    pub fn extensions(&self) -> Vec<String> {
        let mut extensions = vec![
            "binary_tensor_data",
            "classification",
            "generate",
            "logging",
            "model_configuration",
            "model_repository",
            "parameters",
            "schedule_policy",
            "sequence",
            "statistics",
            "trace",
        ];
        if self.shared_memory.is_some() {
            extensions.push("system_shared_memory");
        }
        extensions.into_iter().map(str::to_owned).collect()
    }

    /// Registered regions, or a refusal that says how to switch the extension on.
    pub fn shared_memory(&self) -> Result<&SharedMemory, Refusal> {
        self.shared_memory.as_ref().ok_or_else(|| {
            Refusal::new(
                Reason::Unsupported,
                "system shared memory is switched off: set `server.shared_memory = true` to offer it",
            )
        })
    }

    /// From now on readiness is false; requests are still taken.
    pub fn begin_to_leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.signals.begin_to_leave();
    }

    /// From now on no request is taken and readiness is false; those in flight go on.
    pub fn begin_drain(&self) {
        self.begin_to_leave();
        self.draining.cancel();
        self.signals.end();
    }

    /// Returns once a drain has begun.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Whether the server is about to stop: clients should send their next request elsewhere.
    pub fn leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// Returns once no request is in flight.
    pub async fn idle(&self) {
        self.in_flight.idle().await;
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.count()
    }

    /// Counts a request as in flight and reads its shared memory.
    async fn begin(
        &self,
        request: &mut InferRequest,
        context: &RequestContext,
    ) -> Result<Entered<&InFlight>, Refusal> {
        let begun = match self.enter() {
            Ok(in_flight) if needs_shared_memory(request) => {
                Box::pin(self.resolve_shared_memory(request)).await.map(|()| in_flight)
            }
            entered => entered,
        };
        begun.map_err(|refusal| self.service.logged(context, &request.model_name, refusal))
    }

    fn enter(&self) -> Result<Entered<&InFlight>, Refusal> {
        // Counted before the check: a drain that begins in between waits for this request or refuses it.
        let entered = Entered::new(&*self.in_flight);
        self.takes_requests().map(|()| entered)
    }

    /// Counts a request that another node is to answer as in flight.
    ///
    /// # Errors
    /// The server is shutting down.
    pub fn enter_forwarded(&self) -> Result<Entered<Arc<InFlight>>, Refusal> {
        let entered = Entered::new(Arc::clone(&self.in_flight));
        self.takes_requests().map(|()| entered)
    }

    /// Refuses once the server is shutting down.
    ///
    /// # Errors
    /// It is.
    pub fn takes_requests(&self) -> Result<(), Refusal> {
        if self.draining.is_cancelled() {
            return Err(Refusal::new(
                Reason::Draining,
                "the server is shutting down: send requests elsewhere",
            ));
        }
        Ok(())
    }

    async fn resolve_shared_memory(&self, request: &mut InferRequest) -> Result<(), Refusal> {
        self.shared_memory()?.resolve(request, self.limits.protocol.tensor_bytes as u64).await
    }

    fn rank(&self, response: &mut InferResponse) -> Result<(), Refusal> {
        let view = self.service.model(&response.model_name, Some(&response.model_version))?;
        classification::apply(response, view.signature.max_batch > 0, |output| {
            view.labels.get(output).map(Vec::as_slice)
        })
    }
}

/// The responses to one request, in order. Dropping it cancels the request.
pub struct FrontResponses<'a> {
    front: &'a Front,
    responses: Responses<'a>,
    ranking: bool,
    _in_flight: Entered<&'a InFlight>,
}

impl FrontResponses<'_> {
    /// Whether the model is decoupled: any number of responses may follow.
    pub fn is_decoupled(&self) -> bool {
        self.responses.is_decoupled()
    }

    /// The next response. `None` after the last one.
    pub async fn next(&mut self) -> Option<Streamed> {
        let Streamed { response, last } = self.responses.next().await?;
        let response = match response {
            Some(Ok(response)) => Some(self.front.complete(response, self.ranking).await),
            other => other,
        };
        Some(Streamed { response, last })
    }
}

fn needs_shared_memory(request: &InferRequest) -> bool {
    request.inputs.iter().any(|input| matches!(input.data, TensorData::Shared(_)))
        || request.outputs.iter().flatten().any(|output| output.parameters.shared_memory.is_some())
}
