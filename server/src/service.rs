//! The service function behind HTTP and gRPC, and views of models for both.

mod cached;
mod infer;
mod sequence;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use models::VersionPolicy;
use node::Node;
use node::reason::{Reason, Refusal};
use oip::{InferRequest, InferResponse};
pub use router::Timing;
use router_core::Tenant;
pub use stream::{RESPONSES_WAITING_MAX, Responses, Streamed};

/// Facts about a request besides its body. Authentication belongs in [`RequestContext::new`], which both transports
/// call: it decides who the tenant is.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// When the first byte of the request arrived. The deadline counts from here.
    pub arrived: Instant,
    /// The transport's timeout (`grpc-timeout`), if any.
    pub transport_timeout: Option<Duration>,
    /// Whose request it is, for fair shares.
    pub tenant: Tenant,
}

impl RequestContext {
    /// The context of a request. All requests have the same tenant, because callers are not authenticated.
    pub fn new(arrived: Instant, transport_timeout: Option<Duration>) -> Self {
        Self { arrived, transport_timeout, tenant: Tenant::default() }
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
}

impl Service {
    /// A service over a started node.
    pub fn new(node: Node) -> Arc<Self> {
        Arc::new(Self { node })
    }

    /// Validates a request against the model's signature, queues it and waits for the answer. Dropping the
    /// future cancels the request.
    pub async fn infer(&self, request: InferRequest, context: RequestContext) -> Result<Answered, Refusal> {
        let catalog = self.node.catalog();
        let (loaded, _user) = catalog.hold(&request.model_name, request.model_version.as_deref())?;
        if loaded.decoupled {
            let message = format!(
                "model `{}` is decoupled: it gives any number of responses, expected a call of ModelStreamInfer",
                loaded.name
            );
            return Err(Refusal::new(Reason::Unsupported, message));
        }
        infer::run(catalog, &loaded, request, &context, None).await
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
