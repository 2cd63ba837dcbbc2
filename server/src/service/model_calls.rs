//! The server as the models see it that it runs: Python models may call other models and report metrics.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::Label;
use models::engine::python::{CallError, CheckedCall, MetricType, ModelHost, ModelMetric, Respond};
use models::engine::{ModelErrorCode, RequestDetails, Response, RunError};
use node::catalog::submit::model_refusal;
use node::reason::{Reason, Refusal};
use oip::InferRequest;
use router_core::Tenant;
use tokio::runtime::Handle;

use super::{RequestContext, Service, Streamed, Timing};
use crate::validate;

/// Responses to one call that are kept. A model that gives more gets an error.
const RESPONSES_MAX: usize = 4096;
/// Bound on the series that models add to the metrics.
const SERIES_MAX: usize = 1000;
/// Bound on the length of a name or value of a label.
const LABEL_BYTES_MAX: usize = 256;

/// What models call.
pub(super) struct ModelCalls {
    service: std::sync::Weak<Service>,
    runtime: Option<Handle>,
    series: Mutex<BTreeSet<String>>,
}

impl ModelCalls {
    /// For the models of a service. Calls run on the current runtime.
    pub fn new(service: std::sync::Weak<Service>) -> Self {
        Self { service, runtime: Handle::try_current().ok(), series: Mutex::default() }
    }
}

fn stopping() -> CallError {
    (ModelErrorCode::Unavailable, "the server is stopping".to_owned())
}

fn call_error(refusal: Refusal) -> CallError {
    let code = match refusal.reason {
        Reason::Malformed => ModelErrorCode::InvalidArgument,
        Reason::UnknownModel | Reason::UnknownVersion | Reason::ModelNotFound => ModelErrorCode::NotFound,
        Reason::ModelNotReady | Reason::ModelUnavailable | Reason::QueueFull => ModelErrorCode::Unavailable,
        Reason::Unsupported | Reason::ModelUnsupported => ModelErrorCode::Unsupported,
        Reason::ModelUnknown => ModelErrorCode::Unknown,
        Reason::ModelAlreadyExists => ModelErrorCode::AlreadyExists,
        Reason::Cancelled | Reason::ModelCancelled => ModelErrorCode::Cancelled,
        _ => ModelErrorCode::Internal,
    };
    (code, refusal.message)
}

async fn responses(service: &Service, request: InferRequest) -> Vec<Result<Response, CallError>> {
    let context = RequestContext::new(Instant::now(), None, Tenant::default());
    let mut responses = match service.infer_stream(request, context) {
        Ok(responses) => responses,
        Err(refusal) => return vec![Err(call_error(refusal))],
    };
    let mut all = Vec::new();
    while let Some(Streamed { response, .. }) = responses.next().await {
        let Some(response) = response else { continue };
        if all.len() >= RESPONSES_MAX {
            let message = format!("the called model gives more than {RESPONSES_MAX} responses");
            all.push(Err((ModelErrorCode::Unsupported, message)));
            break;
        }
        all.push(match response {
            Ok(response) => Ok(Response {
                outputs: response.outputs.into_iter().map(|(tensor, _)| tensor).collect(),
                parameters: response.parameters,
            }),
            Err(refusal) => Err(call_error(refusal)),
        });
    }
    all
}

impl ModelHost for ModelCalls {
    fn check(&self, request: InferRequest) -> Result<CheckedCall, CallError> {
        let service = self.service.upgrade().ok_or_else(stopping)?;
        let catalog = service.node.catalog();
        let loaded =
            catalog.find(&request.model_name, request.model_version.as_deref()).map_err(call_error)?;
        validate::outputs(&loaded.client, request.outputs.as_deref()).map_err(call_error)?;
        let mut member = validate::inputs(&loaded.client, request.inputs).map_err(call_error)?.member;
        if loaded.takes_requests {
            let outputs =
                request.outputs.map(|outputs| outputs.into_iter().map(|output| output.name).collect());
            let (id, parameters) = (request.id, request.parameters);
            member.details =
                Some(Arc::new(RequestDetails { id, parameters, outputs, ..RequestDetails::default() }));
        }
        // Padding and the state of sequences are the queue's.
        let prepared = loaded.padding.is_some() || loaded.config().sequences.is_some();
        let (model, queued, rows) = (loaded.id.0, loaded.decoupled || prepared, member.rows);
        let record = move |took: Duration, error: Option<&RunError>| match error {
            None => {
                let timing = Timing { compute: took, batch_rows: rows, ..Timing::default() };
                loaded.metrics.record_answer(&timing, took, None);
                loaded.metrics.record_batch(rows);
                loaded.statistics.called(rows, took);
            }
            Some(error) => {
                loaded.metrics.record_refusal(model_refusal(&loaded.name, error).reason);
                loaded.statistics.call_failed(took);
            }
        };
        Ok(CheckedCall { model, queued, member, record: Box::new(record) })
    }

    fn call(&self, request: InferRequest, respond: Respond) {
        let (Some(service), Some(runtime)) = (self.service.upgrade(), &self.runtime) else {
            return respond(vec![Err(stopping())]);
        };
        runtime.spawn(async move { respond(responses(&service, request).await) });
    }

    fn is_ready(&self, model: &str, version: Option<&str>) -> bool {
        self.service.upgrade().is_some_and(|service| service.model_ready(model, version))
    }

    fn metric(&self, metric: ModelMetric) -> Result<(), String> {
        let name = &metric.name;
        let is_name = |text: &str| {
            let mut letters = text.bytes();
            letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
                && text.len() <= LABEL_BYTES_MAX
        };
        if !is_name(name) || name.starts_with("tessera_") || name.starts_with("nv_") {
            return Err(format!(
                "metric `{name}`: expected letters, digits and `_`, and a name that is not the server's"
            ));
        }
        if let Some((label, _)) =
            metric.labels.iter().find(|(label, value)| !is_name(label) || value.len() > LABEL_BYTES_MAX)
        {
            return Err(format!(
                "metric `{name}`: label `{label}`: expected letters, digits and `_`, and at most {LABEL_BYTES_MAX} bytes"
            ));
        }
        let key = format!("{name}{:?}", metric.labels);
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if !series.contains(&key) {
            if series.len() >= SERIES_MAX {
                return Err(format!("metric `{name}`: models have {SERIES_MAX} series already"));
            }
            series.insert(key);
        }
        drop(series);
        let labels: Vec<Label> =
            metric.labels.into_iter().map(|(label, value)| Label::new(label, value)).collect();
        match metric.metric_type {
            MetricType::Counter => {
                metrics::counter!(metric.name, labels).absolute(metric.value.max(0.0) as u64)
            }
            MetricType::Gauge => metrics::gauge!(metric.name, labels).set(metric.value),
        }
        Ok(())
    }
}
