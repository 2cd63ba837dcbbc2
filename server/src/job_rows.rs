//! Rows of jobs as requests of best effort.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use job_formats::record;
use jobs::{Column, Format, JobMetrics, JobState, Jobs, Options, Record, Request, RowOutcome, RowRunner};
use node::config::Config;
use node::metrics::{JobsMetrics, Transport};
use node::reason::{Reason, Refusal};
use oip::{InferRequest, OutputParameters, Parameter, RequestedOutput, Tensor};
use serde::Deserialize;
use tokio::runtime::{Builder, Runtime};

use crate::errors;
use crate::flat_json;
use crate::job_tensors;
use crate::service::{ModelView, RequestContext, Service};

/// Batches of each lane whose rows are in the server together: one runs, and one waits.
const BATCHES: usize = 2;
/// Most rows of a job that are in the server together.
const WINDOW_MAX: usize = 4_096;
/// Most threads that decode rows and encode results.
const THREADS_MAX: usize = 8;
/// Part of the queue of a model that the rows of one job may fill. Best effort as a whole may fill half of it.
const QUEUE_PART: u32 = 4;

/// The jobs of a server, and the threads that decode their rows and encode their results.
pub struct ServerJobs {
    jobs: Jobs,
    /// Its threads have idle priority: the results of a row can take longer to encode than a request of a client.
    runtime: Option<Runtime>,
}

impl Deref for ServerJobs {
    type Target = Jobs;

    fn deref(&self) -> &Jobs {
        &self.jobs
    }
}

impl Drop for ServerJobs {
    fn drop(&mut self) {
        self.jobs.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads.min(THREADS_MAX)).thread_name("tessera-rows").enable_all();
    builder.on_thread_start(|| {
        if let Err(error) = models::enter_idle_priority() {
            tracing::warn!(%error, "rows of jobs are decoded at ordinary priority");
        }
    });
    builder.build()
}

/// Opens the jobs of a server, if `jobs.folder` is set, and goes on with those that have not ended.
///
/// # Errors
/// The folder cannot be used.
pub fn open(
    config: &Config,
    service: &Arc<Service>,
    limits: oip::Limits,
) -> anyhow::Result<Option<ServerJobs>> {
    let Some(folder) = &config.jobs.folder else { return Ok(None) };
    let options = Options {
        folder: folder.clone(),
        bytes_max: config.jobs.max_bytes.0,
        jobs_max: config.jobs.max_jobs.get(),
        row_max: limits.body_bytes,
        keep: config.jobs.keep.0,
    };
    let queue = u32::try_from(config.limits.queue.get()).unwrap_or(u32::MAX);
    let rows = Rows { service: Arc::downgrade(service), limits, queue };
    let (runtime, counts) = (runtime()?, Counts(JobsMetrics::new()));
    let jobs = Jobs::open(options, Arc::new(rows), Arc::new(counts), runtime.handle().clone());
    let jobs = jobs.with_context(|| format!("jobs.folder: {}", folder.display()))?;
    Ok(Some(ServerJobs { jobs, runtime: Some(runtime) }))
}

struct Counts(JobsMetrics);

impl JobMetrics for Counts {
    fn open(&self, jobs: usize, rows_left: u64) {
        self.0.open(jobs, rows_left);
    }

    fn row(&self, outcome: &RowOutcome) {
        self.0.row(match outcome {
            RowOutcome::Answer { .. } => "answered",
            RowOutcome::Mistake(_) => "mistake",
            RowOutcome::Failed(_) => "failed",
            RowOutcome::Refused(_) => "refused",
        });
    }

    fn ended(&self, state: JobState) {
        self.0.ended(state.word());
    }
}

struct Rows {
    service: Weak<Service>,
    limits: oip::Limits,
    queue: u32,
}

impl RowRunner for Rows {
    fn run(&self, job: &Record, row: u64, input: Bytes) -> Pin<Box<dyn Future<Output = RowOutcome> + Send>> {
        let (service, limits) = (self.service.upgrade(), self.limits);
        let (request, id) = (job.request.clone(), format!("job-{}-{row}", job.id));
        Box::pin(async move {
            let Some(service) = service else {
                return RowOutcome::Refused("the server is shutting down".to_owned());
            };
            let tenant = service.node.catalog().tenants().named(Some(&request.tenant));
            let context = RequestContext::new(id, Instant::now(), Transport::Job, tenant);
            infer(&service, &request, &input, &limits, context).await.unwrap_or_else(outcome)
        })
    }

    fn window(&self, job: &Record) -> Option<u32> {
        let service = self.service.upgrade()?;
        let view = service.model(&job.request.model, job.request.version.as_deref()).ok()?;
        let batch = usize::try_from(view.signature.max_batch.max(1)).unwrap_or(usize::MAX);
        let rows = batch.saturating_mul(BATCHES).saturating_mul(view.lanes.max(1)).min(WINDOW_MAX);
        Some(u32::try_from(rows).unwrap_or(u32::MAX).min((self.queue / QUEUE_PART).max(1)))
    }
}

/// A row with a list of inputs is a request of the protocol.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(default, borrow)]
    inputs: Option<&'a serde_json::value::RawValue>,
}

/// How the answer to a row is written.
enum Answer {
    /// As the protocol has it.
    Protocol,
    /// A flat object.
    Flat,
    /// A record of tensors.
    Record,
}

async fn infer(
    service: &Service,
    job: &Request,
    row: &Bytes,
    limits: &oip::Limits,
    context: RequestContext,
) -> Result<RowOutcome, Refusal> {
    let view = service.model(&job.model, job.version.as_deref())?;
    let (mut request, answer) = if job.input == Format::JsonLines {
        of_line(&view, job, row, limits)?
    } else {
        (of_record(&view, job, row)?, Answer::Flat)
    };
    let answer = if job.results == Format::JsonLines { answer } else { Answer::Record };
    request.parameters.retain(|(name, _)| name != "class");
    request.parameters.push(("class".to_owned(), Parameter::String("best_effort".to_owned())));
    if request.outputs.is_none() && !job.outputs.is_empty() {
        request.outputs = Some(job.outputs.iter().cloned().map(requested).collect());
    }
    let response = service.infer(request, context).await?.response;
    let result = match answer {
        Answer::Protocol => oip::json::encode_infer(&response, false)?.head,
        Answer::Flat => flat_json::flat(&response)?.into(),
        Answer::Record => return recorded(job_tensors::outputs(&view, response), job.results),
    };
    Ok(RowOutcome::Answer { result, columns: Vec::new() })
}

fn of_line(
    view: &ModelView,
    job: &Request,
    line: &Bytes,
    limits: &oip::Limits,
) -> Result<(InferRequest, Answer), Refusal> {
    let (model, version) = (job.model.as_str(), job.version.as_deref());
    let malformed = |error: serde_json::Error| Refusal::new(Reason::Malformed, format!("row: {error}"));
    let is_request = serde_json::from_slice::<Line<'_>>(line).map_err(malformed)?.inputs.is_some()
        && view.signature.inputs.iter().all(|input| input.name != "inputs");
    Ok(match is_request {
        true => (oip::json::decode_infer(model, version, line, None, limits)?, Answer::Protocol),
        false => (of_members(view, (model, version), line, limits)?, Answer::Flat),
    })
}

fn of_record(view: &ModelView, job: &Request, row: &Bytes) -> Result<InferRequest, Refusal> {
    let lost = |told: String| Refusal::new(Reason::Internal, told);
    let tensors = record::decode(row).map_err(|error| lost(error.to_string()))?.map_err(lost)?;
    Ok(InferRequest {
        model_name: job.model.clone(),
        model_version: job.version.clone(),
        id: String::new(),
        parameters: Vec::new(),
        inputs: job_tensors::inputs(view, tensors)?,
        outputs: None,
        binary_output: true,
    })
}

fn recorded(tensors: Vec<Tensor>, results: Format) -> Result<RowOutcome, Refusal> {
    if let (Format::Parquet, Some(name)) = (results, job_tensors::not_utf8(&tensors)) {
        let told = format!("output `{name}` is not UTF-8, which text in Parquet files is");
        return Ok(RowOutcome::Mistake(told));
    }
    let columns = tensors.iter().map(Column::from).collect();
    let result = record::encode(Ok(tensors));
    let result = result.map_err(|error| Refusal::new(Reason::Internal, error.to_string()))?;
    Ok(RowOutcome::Answer { result, columns })
}

fn requested(name: String) -> RequestedOutput {
    RequestedOutput { name, parameters: OutputParameters::default() }
}

fn of_members(
    view: &ModelView,
    (model, version): (&str, Option<&str>),
    line: &Bytes,
    limits: &oip::Limits,
) -> Result<InferRequest, Refusal> {
    let (names, request) = flat_json::request(view, line)?;
    let request = oip::json::decode_infer(model, version, &request.into(), None, limits);
    request.map_err(|error| flat_json::in_words_of_client(Refusal::from(error), &names))
}

/// What a refusal means for the row: an error of the row itself is its result, and others are tried again.
fn outcome(refusal: Refusal) -> RowOutcome {
    let status = errors::row(refusal.reason).http.as_u16();
    match (refusal.reason, status) {
        (Reason::EngineFailed | Reason::Quarantined | Reason::Internal, _) => {
            RowOutcome::Failed(refusal.message)
        }
        (Reason::ModelNotFound | Reason::ModelUnsupported, _) => RowOutcome::Mistake(refusal.message),
        (_, 400 | 413) => RowOutcome::Mistake(refusal.message),
        _ => RowOutcome::Refused(refusal.message),
    }
}
