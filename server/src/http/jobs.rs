//! Jobs: submit, list, show, cancel, and read results.

use std::io::Read as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{Extensions, HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use identity::{Caller, Role};
use jobs::{JobError, JobId, JobView, Jobs, Millis, Request};
use models::{ModelName, Version};
use node::reason::{Reason, Refusal};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::repository::take_nothing;
use super::response::{self, Refused};
use crate::front::Front;
use crate::tenant;

/// Media type of one JSON object a line.
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// Bytes of results that are read from disk together.
const CHUNK: usize = 256 << 10;

#[derive(Serialize)]
struct List {
    jobs: Vec<JobView>,
}

fn jobs(front: &Front) -> Result<&Jobs, Refusal> {
    front.jobs.as_deref().map(|jobs| &**jobs).ok_or_else(|| {
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
        JobError::File { .. } | JobError::Journal(_) | JobError::Row(_) => Reason::Internal,
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
    let mut input = jobs.receive().map_err(refusal)?;
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
            _ => {
                let shown: String = key.chars().take(32).collect();
                return Err(wrong(format!(
                    "`{shown}`: unknown, expected `model`, `version`, `outputs` and `by`"
                )));
            }
        }
    }
    let model = model.ok_or_else(|| wrong("model: missing, as in `/v2/jobs?model=NAME`".to_owned()))?;
    if !front.service.node.catalog().known_names()?.contains(&model) {
        return Err(Refusal::new(Reason::UnknownModel, format!("model `{model}`: not found")));
    }
    check_outputs(front, (&model, version.as_deref()), &outputs)?;
    Ok(Request { model, version, outputs, tenant, by })
}

/// Refuses outputs that the model does not have, if it is ready. Otherwise its rows tell.
fn check_outputs(
    front: &Front,
    (model, version): (&str, Option<&str>),
    outputs: &[String],
) -> Result<(), Refusal> {
    let Ok(view) = front.service.model(model, version) else { return Ok(()) };
    let known = || view.signature.outputs.iter().map(|output| output.name.as_str());
    match outputs.iter().find(|name| known().all(|known| known != name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let shown: String = name.chars().take(64).collect();
            let known = known().collect::<Vec<_>>().join(", ");
            let message =
                format!("outputs: model `{model}` has no output `{shown}`: expected some of {known}");
            Err(Refusal::new(Reason::Malformed, message))
        }
    }
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
    let (mut results, _) = jobs(&front)?.output(&view.record, from).map_err(refusal)?;
    let (chunks, read) = mpsc::channel::<std::io::Result<Bytes>>(1);
    tokio::task::spawn_blocking(move || {
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
    });
    let body = axum::body::Body::from_stream(ReceiverStream::new(read));
    Ok(([(CONTENT_TYPE, LINES)], body).into_response())
}
