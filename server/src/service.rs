//! The service function behind HTTP and gRPC, and views of models for both.

mod cached;
mod dispatch;
mod ensemble;
mod family;
mod infer;
mod mirror;
mod model_calls;
mod sequence;
mod sink;
mod stream;
mod vote;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model_calls::ModelCalls;
use models::VersionPolicy;
use models::engine::python::ModelHost;
use node::Node;
use node::catalog::Trial;
use node::metrics::Transport;
use node::reason::{Reason, Refusal};
use node::request_log::{Origin, Span};
use node::tenants::RequestTenant;
use oip::{InferRequest, InferResponse};
use router::Gather;
pub use router::Timing;
pub use sink::RESPONSES_WAITING_MAX;
pub use stream::{Responses, Streamed};

use crate::trace::Trace;

/// Facts about a request besides its body.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The request's id: the client's, if usable, else ours.
    pub id: String,
    /// When the first byte of the request arrived. The deadline counts from here.
    pub arrived: Instant,
    /// How it came.
    pub transport: Transport,
    /// The transport's timeout (`grpc-timeout`), if any.
    pub transport_timeout: Option<Duration>,
    /// Whose request it is, for fair shares and quotas.
    pub tenant: RequestTenant,
    /// The batch that a picker put it into, if it is marked.
    pub gather: Option<Gather>,
    /// Its span, if requests are traced with OpenTelemetry.
    pub span: Option<Arc<Span>>,
    /// The trace of the request in Triton's format, if it is traced.
    pub trace: Option<Arc<Trace>>,
}

impl RequestContext {
    /// The context of a request that is not traced.
    pub fn new(id: String, arrived: Instant, transport: Transport, tenant: RequestTenant) -> Self {
        Self {
            id,
            arrived,
            transport,
            transport_timeout: None,
            tenant,
            gather: None,
            span: None,
            trace: None,
        }
    }

    /// For the log of requests.
    pub fn origin(&self) -> Origin<'_> {
        Origin {
            id: &self.id,
            arrived: self.arrived,
            transport: self.transport,
            tenant: self.tenant,
            span: self.span.as_ref(),
        }
    }
}

/// An answer with its timing.
#[derive(Debug)]
pub struct Answered {
    /// The response to encode.
    pub response: InferResponse,
    /// Where the time went.
    pub timing: Timing,
}

/// A model version as metadata calls show it.
#[derive(Clone, Debug)]
pub struct ModelView {
    /// Model name.
    pub name: String,
    /// Versions that are ready, smallest first.
    pub versions: Vec<String>,
    /// Version this view shows.
    pub version: String,
    /// Engine that runs it (`tract`, `ort`, `synthetic`).
    pub engine: &'static str,
    /// Triton-style platform word (`onnxruntime_onnx`, `tract_onnx`, ...).
    pub platform: &'static str,
    /// Inputs, outputs, largest batch.
    pub signature: Arc<models::Signature>,
    /// Whether a request may get any number of responses.
    pub decoupled: bool,
    /// Service-level objective, if one is set.
    pub slo: Option<Duration>,
    /// Batching policy by name.
    pub policy: String,
    /// Class labels by output name, for outputs that have a label file.
    pub labels: Arc<BTreeMap<String, Vec<String>>>,
    /// `config.pbtxt` as protobuf, if the model has one.
    pub written: Option<Arc<oip::proto::ModelConfig>>,
    /// Which versions are to be served.
    pub version_policy: VersionPolicy,
    /// Lanes that run it.
    pub lanes: usize,
    /// Whether the node has GPUs.
    pub on_gpus: bool,
}

/// Shared by every connection.
pub struct Service {
    /// The node that runs the models.
    pub node: Node,
    /// Keeps what models call.
    _model_calls: Arc<ModelCalls>,
}

impl Service {
    /// A service over a started node.
    pub fn new(node: Node) -> Arc<Self> {
        Arc::new_cyclic(|service| {
            let model_calls = Arc::new(ModelCalls::new(service.clone()));
            let host: Arc<dyn ModelHost> = Arc::<ModelCalls>::clone(&model_calls);
            node.model_host().set(Arc::downgrade(&host));
            Self { node, _model_calls: model_calls }
        })
    }

    /// Validates a request against the model's signature, queues it and waits for the answer. Dropping the
    /// future cancels the request.
    pub async fn infer(&self, request: InferRequest, context: RequestContext) -> Result<Answered, Refusal> {
        let catalog = self.node.catalog();
        let held = catalog.hold(&request.model_name, request.model_version.as_deref(), context.tenant.number);
        let held = held.and_then(|held| {
            if held.loaded.decoupled {
                held.trial.into_iter().for_each(Trial::disregard);
                return Err(Refusal::new(
                    Reason::ModelUnsupported,
                    "ModelInfer RPC doesn't support models with decoupled transaction policy",
                ));
            }
            Ok(held)
        });
        let held = held.map_err(|refusal| self.logged(&context, &request.model_name, refusal))?;
        dispatch::run(&self.node, held, request, &context, None).await
    }

    /// Puts a request that was refused before it reached a model into the log of requests.
    pub fn logged(&self, context: &RequestContext, model: &str, refusal: Refusal) -> Refusal {
        self.node.requests().refused_early(context.origin(), model, &refusal);
        Refusal { logged: true, ..refusal }
    }

    /// Metadata of a model; `None` as version means the one that unversioned requests get.
    pub fn model(&self, name: &str, version: Option<&str>) -> Result<ModelView, Refusal> {
        let loaded = self.node.catalog().find(name, version)?;
        let versions =
            self.node.catalog().serving(name).iter().map(|loaded| loaded.version.to_string()).collect();
        let config = loaded.config();
        Ok(ModelView {
            name: loaded.name.clone(),
            versions,
            version: loaded.version.to_string(),
            engine: loaded.engine,
            platform: models::engine::platform(loaded.engine).unwrap_or_default(),
            signature: Arc::clone(&loaded.client),
            decoupled: loaded.decoupled,
            slo: config.slo,
            policy: config.policy.clone(),
            labels: loaded.labels(),
            written: config.written.clone(),
            version_policy: config.versions.clone(),
            lanes: loaded.lanes().len(),
            on_gpus: self.node.has_gpus(),
        })
    }

    /// The refusal of a request that cannot be decoded: that its model is unknown, if it is. A client with a wrong name
    /// should not have to mend its body first.
    pub fn unknown_or(&self, name: &str, version: Option<&str>, refusal: Refusal) -> Refusal {
        let version = version.filter(|version| !version.is_empty());
        match self.node.catalog().find(name, version) {
            Err(unknown) if matches!(unknown.reason, Reason::UnknownModel | Reason::UnknownVersion) => {
                unknown
            }
            _ => refusal,
        }
    }

    /// Whether a model may give any number of responses. Unknown models may not.
    pub fn is_decoupled(&self, name: &str, version: Option<&str>) -> bool {
        self.node.catalog().find(name, version).is_ok_and(|loaded| loaded.decoupled)
    }

    /// Whether that model would take a request now. Unknown models are not ready.
    pub fn model_ready(&self, name: &str, version: Option<&str>) -> bool {
        self.node.live() && self.node.catalog().find(name, version).is_ok()
    }

    /// Statistics of one model (all its ready versions when none is named), or of all.
    pub fn statistics(
        &self,
        name: Option<&str>,
        version: Option<&str>,
    ) -> Result<Vec<oip::proto::ModelStatistics>, Refusal> {
        let version = version.filter(|version| !version.is_empty());
        let loaded = match (name.filter(|name| !name.is_empty()), version) {
            (None, _) => {
                let names = self.node.catalog().serving_names();
                names.iter().flat_map(|name| self.node.catalog().serving(name)).collect()
            }
            (Some(name), None) => {
                self.node.catalog().find(name, None)?;
                self.node.catalog().serving(name)
            }
            (Some(name), version) => vec![self.node.catalog().find(name, version)?],
        };
        Ok(loaded.iter().map(|loaded| loaded.statistics.show(&loaded.name, loaded.version)).collect())
    }
}
