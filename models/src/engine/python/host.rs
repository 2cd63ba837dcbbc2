//! What models can ask the server for while they run.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use oip::InferRequest;

use super::super::{Member, ModelErrorCode, Response, RunError};

/// A call of another model, checked against its signature.
pub struct CheckedCall {
    /// Number of the model on the lanes.
    pub model: u32,
    /// Whether the request must be queued like that of a client: the model may give several responses, or the server
    /// prepares its requests.
    pub queued: bool,
    /// The request as a session gets it.
    pub member: Member,
    /// Counts the call, if it runs on the caller's lane.
    pub record: RecordCall,
}

/// Counts a call that took this long, and its error.
pub type RecordCall = Box<dyn FnOnce(Duration, Option<&RunError>) + Send>;

/// An error of a call.
pub type CallError = (ModelErrorCode, String);

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// It only grows.
    Counter,
    /// It changes in both directions.
    Gauge,
}

/// A value of a metric of a model.
#[derive(Clone, Debug)]
pub struct ModelMetric {
    /// The model that reports it.
    pub model: String,
    /// Name of the metric.
    pub name: String,
    /// Labels by name.
    pub labels: BTreeMap<String, String>,
    /// What its values mean.
    pub metric_type: MetricType,
    /// The value now.
    pub value: f64,
}

/// Receives the responses to a call.
pub type Respond = Box<dyn FnOnce(Vec<Result<Response, CallError>>) + Send>;

/// The server, as the models that it runs see it.
pub trait ModelHost: Send + Sync {
    /// Checks a call of another model.
    ///
    /// # Errors
    /// As a client gets them.
    fn check(&self, request: InferRequest) -> Result<CheckedCall, CallError>;

    /// Runs another model, as a client's request. Returns at once; `respond` is called when all responses are there.
    fn call(&self, request: InferRequest, respond: Respond);

    /// Whether a model takes requests.
    fn is_ready(&self, model: &str, version: Option<&str>) -> bool;

    /// Sets a metric.
    ///
    /// # Errors
    /// Why it is not taken.
    fn metric(&self, metric: ModelMetric) -> Result<(), String>;
}

/// Place for the host. Sessions are loaded by a [`Loader`](crate::Loader), which exists before the server does.
#[derive(Clone, Default)]
pub struct HostSlot(Arc<OnceLock<Weak<dyn ModelHost>>>);

impl HostSlot {
    /// Sets the host, once.
    pub fn set(&self, host: Weak<dyn ModelHost>) {
        // A second server in one process has a loader of its own.
        let _ = self.0.set(host);
    }

    /// The host, if it was set and still exists.
    pub(super) fn get(&self) -> Option<Arc<dyn ModelHost>> {
        self.0.get()?.upgrade()
    }
}

impl std::fmt::Debug for HostSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostSlot")
    }
}
