//! `tessera explain`: why requests of a running server ended as they did, over its REST interface.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use form_urlencoded::Serializer;
use http::Method;
use node::output;
use node::request_log::{Explanation, PipelineStage};
use serde::Deserialize;

use crate::arguments::ExplainArgs;
use crate::rest;

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct List {
    requests: Vec<Explanation>,
}

/// Explains one request, or lists the last ones.
pub fn run(arguments: &ExplainArgs) -> anyhow::Result<ExitCode> {
    rest::wait_for(TIMEOUT, ask(arguments))
}

async fn ask(arguments: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let server = arguments.server.server()?;
    let path = path(arguments);
    let answer = server.call(Method::GET, &path).await?;
    if arguments.json {
        output::line(String::from_utf8_lossy(&answer).trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let unreadable = || format!("{} did not answer as a Tessera of this version does", server.authority);
    if arguments.id.is_some() {
        let explanation = serde_json::from_slice(&answer).with_context(unreadable)?;
        output::write(text(&explanation).as_bytes());
    } else {
        let list: List = serde_json::from_slice(&answer).with_context(unreadable)?;
        output::write(table(list.requests).as_bytes());
    }
    Ok(ExitCode::SUCCESS)
}

fn path(arguments: &ExplainArgs) -> String {
    if let Some(id) = &arguments.id {
        let escaped: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
        return format!("/v2/explain/{}", escaped.replace('+', "%20"));
    }
    let mut query = Serializer::new(String::new());
    let conditions = [
        ("model", &arguments.model),
        ("tenant", &arguments.tenant),
        ("outcome", &arguments.outcome),
        ("reason", &arguments.reason),
    ];
    for (key, value) in conditions {
        if let Some(value) = value {
            query.append_pair(key, value);
        }
    }
    query.append_pair("limit", &arguments.limit.to_string());
    format!("/v2/explain?{}", query.finish())
}

fn table(requests: Vec<Explanation>) -> String {
    let ms = |time: f64| format!("{time:.1}");
    let rows = requests.into_iter().map(|one| {
        let outcome = word(&one);
        let objective = one.objective_ms.map(ms).unwrap_or_default();
        let reason = one.reason.unwrap_or_default();
        vec![one.arrived, one.id, one.model, outcome, reason, ms(one.total_ms), objective]
    });
    output::table(&["arrived", "id", "model", "outcome", "reason", "ms", "objective ms"], rows)
}

/// The stages of a pipeline that ended. Times are from the arrival of the request.
fn pipeline(stages: &[PipelineStage]) -> String {
    let ms = |time: f64| format!("{time:.1}");
    let count = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
    let rows = stages.iter().map(|stage| {
        vec![
            stage.stage.clone(),
            format!("{} {}", stage.model, stage.version),
            stage.rows.to_string(),
            stage.parts.to_string(),
            ms(stage.started_ms),
            ms(stage.queue_ms),
            ms(stage.compute_ms),
            ms(stage.ended_ms),
            count(stage.batch_rows),
            count(stage.lane),
            stage.reason.clone().unwrap_or_default(),
        ]
    });
    let header = [
        "stage",
        "model",
        "rows",
        "parts",
        "start ms",
        "queue ms",
        "compute ms",
        "end ms",
        "batch",
        "lane",
        "failed",
    ];
    output::table(&header, rows)
}

/// The outcome as people write it.
fn word(one: &Explanation) -> String {
    let word = serde_json::to_value(one.outcome).unwrap_or_default();
    word.as_str().unwrap_or_default().replace('_', " ")
}

/// One request for people.
fn text(one: &Explanation) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, one);
    text
}

fn write_text(out: &mut String, one: &Explanation) -> std::fmt::Result {
    let reason = one.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    writeln!(out, "request {}: {}{reason}", one.id, word(one))?;
    if let Some(message) = &one.message {
        writeln!(out, "  {message}")?;
    }
    writeln!(out)?;
    let version = one.version.map(|version| format!(", version {version}")).unwrap_or_default();
    writeln!(out, "  model      {}{version}", one.model)?;
    writeln!(out, "  arrived    {} over {}", one.arrived, one.transport)?;
    if !one.tenant.is_empty() {
        writeln!(out, "  tenant     {}", one.tenant)?;
    }
    if let Some(trace) = &one.trace_id {
        writeln!(out, "  trace      {trace}")?;
    }
    if let Some(rows) = one.rows {
        writeln!(out, "  rows       {rows}")?;
    }
    if let Some(class) = one.class {
        writeln!(out, "  priority   {class}")?;
    }
    let objective = one.objective_ms.map(|ms| format!(", objective {ms:.1} ms")).unwrap_or_default();
    writeln!(out, "  ended      after {:.1} ms{objective}", one.total_ms)?;
    if let Some(admission) = &one.admission {
        writeln!(
            out,
            "  admission  {} rows before it on {} lanes: earliest end after {:.1} ms, {:.1} ms with one more lane",
            admission.rows_before,
            admission.lanes,
            admission.earliest_end_ms,
            admission.earliest_end_with_one_more_lane_ms
        )?;
    }
    if let Some(batch) = &one.batch {
        writeln!(
            out,
            "  batch      {} rows on lane {} ({}), started because: {}; {} rows left waiting, {} requests dropped for it; \
             expected to take {:.1} ms",
            batch.rows,
            batch.lane,
            batch.lane_choice.replace('_', " "),
            batch.start_reason.replace('_', " "),
            batch.rows_left,
            batch.dropped,
            batch.expected_ms
        )?;
        if !batch.companions.is_empty() {
            writeln!(out, "  with       {}", batch.companions.join(", "))?;
        }
    }
    if let Some(stages) = &one.stages_ms {
        writeln!(
            out,
            "  stages     before the queue {:.3} ms, queue {:.3}, batch wait {:.3}, compute {:.3}, after {:.3}",
            stages.before_queue, stages.queue, stages.batch_wait, stages.compute, stages.after
        )?;
    }
    if !one.pipeline.is_empty() {
        writeln!(out, "\n{}", pipeline(&one.pipeline).trim_end())?;
    }
    if !one.remedies.is_empty() {
        writeln!(out, "\n  What would have helped:")?;
        for remedy in &one.remedies {
            writeln!(out, "  - {remedy}")?;
        }
    }
    Ok(())
}
