//! Jobs: submit, list, show, cancel, and read results.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{Extensions, HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use identity::{Caller, Role};
use jobs::{Format, JobError, JobId, JobView, Millis, Request};
use models::{ModelName, Version};
use node::reason::{Reason, Refusal};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::repository::take_nothing;
use super::response::{self, Refused};
use crate::front::Front;
use crate::job_rows::ServerJobs;
use crate::tenant;

/// Bytes of results that are read from disk together.
const CHUNK: usize = 256 << 10;

#[derive(Serialize)]
struct List {
    jobs: Vec<JobView>,
}

fn jobs(front: &Front) -> Result<&Arc<ServerJobs>, Refusal> {
    front.jobs.as_ref().ok_or_else(|| {
        let message = "this server takes no jobs: set `jobs.folder` to a folder for their inputs and results";
        Refusal::new(Reason::Unsupported, message)
    })
}

fn refusal(error: JobError) -> Refusal {
    let reason = match &error {
        JobError::Unknown(_) => Reason::UnknownJob,
        JobError::Ended(_) => Reason::JobEnded,
        JobError::TooMany(_) => Reason::QueueFull,
        JobError::TooLarge(_) => Reason::BodyTooLarge,
        JobError::Input(_) => Reason::Malformed,
        JobError::File { .. } | JobError::Journal(_) | JobError::Row(_) | JobError::NotChecked(_) => {
            Reason::Internal
        }
        JobError::Stopping => Reason::Draining,
    };
    Refusal::new(reason, error.to_string())
}

/// Name of the tenant that a request belongs to.
fn tenant_name(front: &Front, headers: &HeaderMap, extensions: &Extensions) -> String {
    let tenant = tenant::of(front, headers, extensions);
    front.service.node.catalog().tenants().request_names().of(tenant).to_string()
}

/// A job that the caller may see: of its own tenant, or any for a caller that reads or operates the server, or need not say who it is.
async fn find(
    front: &Front,
    job: &str,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<JobView, Refusal> {
    let unknown = |shown: String| Refusal::new(Reason::UnknownJob, format!("job {shown}: not found"));
    let id: u64 =
        job.parse().map_err(|_| unknown(format!("`{}`", job.chars().take(32).collect::<String>())))?;
    let found =
        visible(front, headers, extensions).await?.into_iter().find(|view| view.record.id == JobId(id));
    found.ok_or_else(|| unknown(id.to_string()))
}

async fn visible(
    front: &Front,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<Vec<JobView>, Refusal> {
    // A server that takes no jobs has none.
    let Some(jobs) = &front.jobs else { return Ok(Vec::new()) };
    let mut views = jobs.list().await.map_err(refusal)?;
    if extensions.get::<Caller>().is_some_and(|caller| caller.role == Role::Infer) {
        let own = tenant_name(front, headers, extensions);
        views.retain(|view| view.record.request.tenant == own);
    }
    Ok(views)
}

pub async fn submit(
    State(front): State<Arc<Front>>,
    RawQuery(query): RawQuery,
    extensions: Extensions,
    headers: HeaderMap,
    mut sent: axum::body::Body,
) -> Result<Response, Refused> {
    let jobs = jobs(&front)?;
    front.takes_requests()?;
    let tenant = tenant_name(&front, &headers, &extensions);
    let request = request(&front, query.as_deref().unwrap_or_default(), tenant)?;
    if headers.contains_key(CONTENT_ENCODING) {
        let message = "content-encoding: expected none, the rows as they are";
        return Err(Refusal::new(Reason::Unsupported, message).into());
    }
    let mut input = jobs.receive(request.input).map_err(refusal)?;
    let slow = || {
        let message = format!("the input stopped for {} s", front.limits.body_timeout.as_secs());
        Refusal::new(Reason::SlowBody, message)
    };
    // Not a limit for the whole input, which may be large.
    while let Some(frame) =
        tokio::time::timeout(front.limits.body_timeout, sent.frame()).await.map_err(|_| slow())?
    {
        let frame = frame.map_err(|error| Refusal::new(Reason::Malformed, format!("input: {error}")))?;
        let Ok(part) = frame.into_data() else { continue };
        let added = tokio::task::spawn_blocking(move || input.add(&part).map(|()| input)).await;
        input = added.map_err(|error| Refusal::new(Reason::Internal, error.to_string()))?.map_err(refusal)?;
    }
    response::json(&jobs.submit(input, request).await.map_err(refusal)?)
}

fn request(front: &Front, query: &str, tenant: String) -> Result<Request, Refusal> {
    let wrong = |message: String| Refusal::new(Reason::Malformed, message);
    let (mut model, mut version, mut by, mut outputs) = (None, None, None, Vec::new());
    let (mut input, mut results) = (Format::JsonLines, None);
    let format = |key: &str, value: &str| value.parse().map_err(|error| wrong(format!("{key}: {error}")));
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*key {
            "model" => {
                let name = ModelName::new(&value).map_err(|error| wrong(format!("model: {error}")))?;
                model = Some(name.as_str().to_owned());
            }
            "version" => {
                let expected = || wrong("version: expected a whole number".to_owned());
                version = Some(Version::parse(&value).ok_or_else(expected)?.to_string());
            }
            "outputs" => {
                outputs = value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            }
            "by" => {
                let expected = || wrong("by: expected milliseconds since 1970, later than now".to_owned());
                let at: u64 = value.parse().map_err(|_| expected())?;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                by = Some(Millis(at)).filter(|_| u128::from(at) > now.as_millis());
                by.ok_or_else(expected)?;
            }
            "input" => input = format("input", &value)?,
            "results" => results = Some(format("results", &value)?),
            _ => {
                let shown: String = key.chars().take(32).collect();
                return Err(wrong(format!(
                    "`{shown}`: unknown, expected `model`, `version`, `outputs`, `input`, `results` and `by`"
                )));
            }
        }
    }
    let model = model.ok_or_else(|| wrong("model: missing, as in `/v2/jobs?model=NAME`".to_owned()))?;
    if !front.service.node.catalog().known_names()?.contains(&model) {
        return Err(Refusal::new(Reason::UnknownModel, format!("model `{model}`: not found")));
    }
    let results = results.unwrap_or(input);
    let request = Request { model, version, outputs, input, results, tenant, by };
    check_outputs(front, &request)?;
    Ok(request)
}

/// Refuses outputs that the model or the format does not have, if the model is ready. Otherwise its rows tell.
fn check_outputs(front: &Front, request: &Request) -> Result<(), Refusal> {
    let (model, outputs) = (&request.model, &request.outputs);
    let Ok(view) = front.service.model(model, request.version.as_deref()) else { return Ok(()) };
    let known: Vec<&str> = view.signature.outputs.iter().map(|output| output.name.as_str()).collect();
    let wrong =
        |what: String| Err(Refusal::new(Reason::Malformed, format!("outputs: model `{model}` {what}")));
    if let Some(name) = outputs.iter().find(|name| !known.contains(&name.as_str())) {
        let (shown, known) = (name.chars().take(64).collect::<String>(), known.join(", "));
        return wrong(format!("has no output `{shown}`: expected some of {known}"));
    }
    let asked = if outputs.is_empty() { known.len() } else { outputs.len() };
    if request.results == Format::Npy && asked != 1 {
        let known = known.join(", ");
        return wrong(format!(
            "has the outputs {known}, and results in npy are one array: choose one, or npz"
        ));
    }
    Ok(())
}

pub async fn list(
    State(front): State<Arc<Front>>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    response::json(&List { jobs: visible(&front, &headers, &extensions).await? })
}

pub async fn show(
    State(front): State<Arc<Front>>,
    Path(job): Path<String>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    response::json(&find(&front, &job, &headers, &extensions).await?)
}

pub async fn cancel(
    State(front): State<Arc<Front>>,
    Path(job): Path<String>,
    extensions: Extensions,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    take_nothing(&front, &headers, sent).await?;
    let view = find(&front, &job, &headers, &extensions).await?;
    response::json(&jobs(&front)?.cancel(view.record.id).await.map_err(refusal)?)
}

pub async fn output(
    State(front): State<Arc<Front>>,
    Path(job): Path<String>,
    RawQuery(query): RawQuery,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let view = find(&front, &job, &headers, &extensions).await?;
    let mut from = 0;
    for (key, value) in form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()) {
        let number = value.parse().ok().filter(|_| key == "offset");
        from =
            number.ok_or_else(|| Refusal::new(Reason::Malformed, "expected `offset=BYTES` or no query"))?;
    }
    let format = view.record.request.results;
    let jobs = Arc::clone(jobs(&front)?);
    let (chunks, read) = mpsc::channel::<std::io::Result<Bytes>>(1);
    if format == Format::JsonLines {
        let results = jobs.output(&view.record, from).map_err(refusal)?;
        tokio::task::spawn_blocking(move || send_all(results, &chunks));
    } else if from > 0 {
        let message = format!("offset: results in {format} are fetched as a whole");
        return Err(Refusal::new(Reason::Malformed, message).into());
    } else {
        tokio::task::spawn_blocking(move || {
            let mut out = Chunks { chunks: &chunks, part: Vec::with_capacity(CHUNK) };
            let written = jobs.write_results(&view.record, &mut out).map_err(std::io::Error::other);
            if let Err(error) = written.and_then(|()| out.flush()) {
                tracing::warn!(job = view.record.id.0, %error, "the results are not sent completely");
                // The client may have left.
                let _ = chunks.blocking_send(Err(error));
            }
        });
    }
    let body = axum::body::Body::from_stream(ReceiverStream::new(read));
    Ok(([(CONTENT_TYPE, HeaderValue::from_static(format.media_type()))], body).into_response())
}

fn send_all(mut results: impl std::io::Read, chunks: &mpsc::Sender<std::io::Result<Bytes>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let next = results.read(&mut chunk).map(|length| {
            chunk.truncate(length);
            Bytes::from(chunk)
        });
        if next.as_ref().is_ok_and(Bytes::is_empty) {
            return;
        }
        let failed = next.is_err();
        // The client may have left.
        if chunks.blocking_send(next).is_err() || failed {
            return;
        }
    }
}

/// The body of a response as a file.
struct Chunks<'a> {
    chunks: &'a mpsc::Sender<std::io::Result<Bytes>>,
    part: Vec<u8>,
}

impl std::io::Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.part.extend_from_slice(bytes);
        if self.part.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let part = std::mem::take(&mut self.part);
        if part.is_empty() {
            return Ok(());
        }
        let sent = self.chunks.blocking_send(Ok(part.into()));
        sent.map_err(|_| std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the client left"))
    }
}
