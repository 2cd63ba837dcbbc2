//! `tessera models`: lists, loads, unloads and rolls out models on a running server, over its REST interface.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::Method;
use node::output;
use oip::metadata::RepositoryIndexRow;
use serde::{Deserialize, Serialize};

use crate::arguments::{ModelsAction, ModelsArgs};
use crate::rest::{self, Server};
use crate::rollout_report;

/// Timeout of a call: loading a large model is the slowest.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Queries the server and prints its response.
pub fn run(arguments: &ModelsArgs) -> anyhow::Result<ExitCode> {
    rest::wait_for(TIMEOUT, ask(arguments))
}

/// Loads a model on the server at this address.
pub fn load(server: &Server, model: &str) -> anyhow::Result<()> {
    rest::wait_for(TIMEOUT, change(server, model, "load")).map(drop)
}

async fn ask(arguments: &ModelsArgs) -> anyhow::Result<ExitCode> {
    let server = &arguments.server.server()?;
    match &arguments.action {
        None | Some(ModelsAction::List) => {
            let answer = server.call(Method::POST, "/v2/repository/index").await?;
            if arguments.json {
                output::line(&String::from_utf8_lossy(&answer));
                return Ok(ExitCode::SUCCESS);
            }
            let rows: Vec<RepositoryIndexRow> = serde_json::from_slice(&answer)
                .with_context(|| format!("{} did not answer with a repository index", server.authority))?;
            let rows = rows.into_iter().map(|row| vec![row.name, row.version, row.state, row.reason]);
            output::write(output::table(&["model", "version", "state", "reason"], rows).as_bytes());
        }
        Some(ModelsAction::Load { model }) => control(arguments, server, model, "load").await?,
        Some(ModelsAction::Unload { model }) => control(arguments, server, model, "unload").await?,
        Some(ModelsAction::Rollout { model }) => {
            rollout(arguments, server, Method::GET, model, "rollout").await?;
        }
        Some(ModelsAction::Promote { model }) => {
            rollout(arguments, server, Method::POST, model, "rollout/promote").await?;
        }
        Some(ModelsAction::Rollback { model }) => {
            rollout(arguments, server, Method::POST, model, "rollout/rollback").await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn control(arguments: &ModelsArgs, server: &Server, model: &str, action: &str) -> anyhow::Result<()> {
    let answer = change(server, model, action).await?;
    // Other servers of the protocol do not say what they did.
    let report: Option<Report> = serde_json::from_slice(&answer).ok();
    if arguments.json {
        output::line(&serde_json::json!({ "model": model, "done": action, "report": report }).to_string());
    } else {
        let lines = report.map_or_else(|| vec![format!("{action}ed")], |report| report.lines());
        lines.iter().for_each(|line| output::line(&format!("{model}: {line}")));
    }
    Ok(())
}

/// What a load did.
#[derive(Debug, Deserialize, Serialize)]
struct Report {
    loaded: Vec<u64>,
    unloaded: Vec<u64>,
    changes: Vec<String>,
}

impl Report {
    fn lines(&self) -> Vec<String> {
        let mut lines = self.changes.clone();
        lines.extend(self.loaded.iter().map(|version| format!("version {version} loaded")));
        lines.extend(self.unloaded.iter().map(|version| format!("version {version} unloaded")));
        if self.loaded.is_empty() && !self.changes.is_empty() {
            lines.push("taken up without loading".to_owned());
        }
        if lines.is_empty() {
            lines.push("is loaded and nothing changed".to_owned());
        }
        lines
    }
}

async fn rollout(
    arguments: &ModelsArgs,
    server: &Server,
    method: Method,
    model: &str,
    path: &str,
) -> anyhow::Result<()> {
    let name = name(model)?;
    let answer = server.call(method, &format!("/v2/models/{name}/{path}")).await?;
    if arguments.json {
        output::line(String::from_utf8_lossy(&answer).trim_end());
    } else {
        let rollout: node::catalog::RolloutView = serde_json::from_slice(&answer)
            .with_context(|| format!("{} did not answer with a roll-out", server.authority))?;
        output::write(rollout_report::text(&rollout).as_bytes());
    }
    Ok(())
}

fn name(model: &str) -> anyhow::Result<models::ModelName> {
    model.parse().map_err(|error| anyhow::anyhow!("model `{model}`: {error}"))
}

async fn change(server: &Server, model: &str, action: &str) -> anyhow::Result<Bytes> {
    let name = name(model)?;
    server.call(Method::POST, &format!("/v2/repository/models/{name}/{action}")).await
}
