//! `tessera job`: submits files to a running server, and follows, cancels and fetches jobs, over its REST interface.

pub mod arguments;
mod report;
mod time;

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use form_urlencoded::Serializer;
use http::Method;
use jobs::{Format, JobState, JobView};
use node::output;
use serde::Deserialize;
use tempfile::NamedTempFile;

use crate::progress;
use crate::rest::Server;
use arguments::{JobAction, JobArgs, SubmitArgs};

/// Timeout of a call; inputs and results take as long as they take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often a job is asked for while it is watched.
const INTERVAL: Duration = Duration::from_secs(1);
/// Calls in a row that may fail while a job is watched: the server may be restarting.
const FAILURES_MAX: u32 = 120;

#[derive(Deserialize)]
struct List {
    jobs: Vec<JobView>,
}

/// Runs the command.
///
/// # Errors
/// The server refuses or cannot be reached.
pub fn run(arguments: &JobArgs, is_terminal: bool) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(act(arguments, is_terminal))
}

async fn act(arguments: &JobArgs, is_terminal: bool) -> anyhow::Result<ExitCode> {
    let server = &arguments.server.server()?;
    let json = arguments.json;
    match &arguments.action {
        JobAction::Submit(submit) => {
            let job = self::submit(server, submit, is_terminal).await?;
            if submit.output.is_none() && !submit.watch {
                tell(&job, json)?;
                return Ok(ExitCode::SUCCESS);
            }
            if !json {
                output::complain(&format!("job {} submitted: {} rows", job.record.id, job.record.rows));
            }
            let job = watch(server, job.record.id.0, (is_terminal, json)).await?;
            if let Some(file) = &submit.output {
                fetch(server, job.record.id.0, Some(file)).await?;
            }
            Ok(end(&job))
        }
        JobAction::List => {
            let answer = call(server, Method::GET, "/v2/jobs").await?;
            if json {
                output::line(String::from_utf8_lossy(&answer).trim_end());
            } else {
                let list: List = serde_json::from_slice(&answer).with_context(|| unreadable(server))?;
                output::write(report::table(&list.jobs).as_bytes());
            }
            Ok(ExitCode::SUCCESS)
        }
        JobAction::Show { job } => {
            tell(&view(server, *job).await?, json)?;
            Ok(ExitCode::SUCCESS)
        }
        JobAction::Watch { job } => Ok(end(&watch(server, *job, (is_terminal, json)).await?)),
        JobAction::Cancel { job } => {
            let answer = call(server, Method::POST, &format!("/v2/jobs/{job}/cancel")).await?;
            tell(&serde_json::from_slice(&answer).with_context(|| unreadable(server))?, json)?;
            Ok(ExitCode::SUCCESS)
        }
        JobAction::Results { job, output } => {
            fetch(server, *job, output.as_deref()).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whether the job did what it was submitted for.
fn end(job: &JobView) -> ExitCode {
    if job.record.state == JobState::Done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn unreadable(server: &Server) -> String {
    format!("{} did not answer as a Tessera of this version does", server.authority)
}

fn tell(job: &JobView, json: bool) -> anyhow::Result<()> {
    if json {
        output::line(&serde_json::to_string(job)?);
    } else {
        output::write(report::text(job).as_bytes());
    }
    Ok(())
}

async fn call(server: &Server, method: Method, path: &str) -> anyhow::Result<Bytes> {
    let answered = tokio::time::timeout(TIMEOUT, server.call(method, path)).await;
    answered.context("the server did not answer in time")?
}

async fn view(server: &Server, job: u64) -> anyhow::Result<JobView> {
    let answer = call(server, Method::GET, &format!("/v2/jobs/{job}")).await?;
    serde_json::from_slice(&answer).with_context(|| unreadable(server))
}

async fn submit(server: &Server, arguments: &SubmitArgs, is_terminal: bool) -> anyhow::Result<JobView> {
    let mut query = Serializer::new(String::new());
    query.append_pair("model", &arguments.model);
    if let Some(version) = arguments.version {
        query.append_pair("version", &version.to_string());
    }
    if !arguments.outputs.is_empty() {
        query.append_pair("outputs", &arguments.outputs.join(","));
    }
    if let Some(by) = &arguments.by {
        let by =
            time::parse(by, &jiff::Zoned::now()).map_err(|problem| anyhow::anyhow!("--by: {problem}"))?;
        query.append_pair("by", &by.as_millisecond().to_string());
    }
    let input = arguments.input_format.or_else(|| Format::of_path(&arguments.input)).unwrap_or_default();
    let named = arguments.output.as_deref().and_then(Format::of_path);
    let results = arguments.output_format.or(named).unwrap_or(input);
    query.append_pair("input", input.word()).append_pair("results", results.word());
    let path = format!("/v2/jobs?{}", query.finish());
    let named = || format!("--input {}", arguments.input.display());
    let (input, bytes): (Box<dyn io::Read + Send>, u64) = if arguments.input == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(&arguments.input).with_context(named)?;
        let bytes = file.metadata().with_context(named)?.len();
        (Box::new(file), bytes)
    };
    let bar = progress::bar(is_terminal && bytes > 0, bytes, "sending {bar:30} {bytes} of {total_bytes}");
    let counted = bar.wrap_read(input);
    let answer = server.upload(&path, counted).await?;
    bar.finish_and_clear();
    serde_json::from_slice(&answer).with_context(|| unreadable(server))
}

/// Follows a job to its end. A server that restarts is waited for.
async fn watch(server: &Server, job: u64, (is_terminal, json): (bool, bool)) -> anyhow::Result<JobView> {
    let (mut failures, mut seen) = (0, view(server, job).await?);
    let bar = progress::bar(is_terminal && !json, seen.record.rows, "{bar:30} {pos} of {len} rows  {msg}");
    while seen.record.state == JobState::Open {
        if json {
            output::line(&serde_json::to_string(&seen)?);
        }
        bar.set_position(seen.done);
        bar.set_message(report::forecast_line(&seen));
        tokio::time::sleep(INTERVAL).await;
        match view(server, job).await {
            Ok(now) => (failures, seen) = (0, now),
            Err(error) if failures < FAILURES_MAX => {
                failures += 1;
                bar.set_message(format!("{error:#}"));
            }
            Err(error) => return Err(error),
        }
    }
    bar.finish_and_clear();
    tell(&seen, json)?;
    Ok(seen)
}

/// Writes the results of a job to a file, which is complete or does not change, or to standard output.
async fn fetch(server: &Server, job: u64, file: Option<&Path>) -> anyhow::Result<()> {
    let path = format!("/v2/jobs/{job}/output");
    let Some(file) = file else {
        let format = view(server, job).await?.record.request.results;
        if format != Format::JsonLines && io::stdout().is_terminal() {
            anyhow::bail!(
                "the results of job {job} are {format}, which a terminal does not show: pass --output FILE"
            );
        }
        let mut out = io::stdout().lock();
        server.download(&path, &mut out).await?;
        return out.flush().context("standard output");
    };
    let named = || format!("--output {}", file.display());
    let format = view(server, job).await?.record.request.results;
    if let Some(other) = Format::of_path(file).filter(|other| *other != format) {
        anyhow::bail!("{}: the results of job {job} are {format}, not {other}", named());
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = NamedTempFile::new_in(folder).with_context(named)?;
    server.download(&path, &mut new).await?;
    new.persist(file).with_context(named)?;
    Ok(())
}
