//! Starts a server process on free ports.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{self, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use node::metrics::names;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use workload::{Model, Workload};

use super::repository::Repository;
use crate::models_command;
use crate::rest::{self, CredentialArgs, Server};

/// Maximum bytes of the first line that a server prints.
const ANNOUNCEMENT_BYTES: u64 = 16 << 20;

/// Longest wait for the server's metrics.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A server process. Dropping it ends the process.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    /// Address of the REST interface.
    pub http: String,
    /// Address of the gRPC interface.
    pub grpc: String,
    /// Address of the metrics.
    metrics: String,
}

/// What a server counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Batches that its policies ended early.
    pub preempted: u64,
    /// Requests that each model answered. Those of a family count for their variants.
    pub answered: BTreeMap<String, u64>,
}

impl Counted {
    /// The same with the names of the workload instead of those that its models are served as.
    #[must_use]
    pub fn of_workload<'a>(mut self, workload: &'a Workload, served: impl Fn(&'a Model) -> &'a str) -> Self {
        let own = workload.models.iter().map(|model| (model.name.clone(), served(model)));
        let answered = own.filter_map(|(name, served)| Some((name, *self.answered.get(served)?)));
        self.answered = answered.collect();
        self
    }

    /// What it counted since then.
    pub fn since(mut self, before: &Self) -> Self {
        self.preempted = self.preempted.saturating_sub(before.preempted);
        for (model, count) in &mut self.answered {
            *count = count.saturating_sub(before.answered.get(model).copied().unwrap_or_default());
        }
        self
    }
}

#[derive(Deserialize)]
struct Announcement {
    http: String,
    grpc: String,
    metrics: String,
    ready: bool,
    models: Vec<ModelRow>,
}

#[derive(Deserialize)]
struct ModelRow {
    name: String,
    state: String,
    #[serde(default)]
    reason: String,
}

impl Child {
    /// Starts this program as a server and waits until its models are loaded.
    pub fn start(repository: &Repository, command_line: &[String]) -> anyhow::Result<Self> {
        let program = std::env::current_exe()
            .ok()
            .or_else(|| command_line.first().map(Into::into))
            .context("cannot find this program's file")?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--json").args(["--log-level", "warn"]);
        command.args(&repository.options);
        for address in ["--http", "--grpc", "--metrics", "--admin"] {
            command.args([address, "127.0.0.1:0"]);
        }
        let mut process = command.stdout(Stdio::piped()).spawn().context("cannot start a server")?;
        let out = process.stdout.take();
        // The drop ends the process if anything below fails.
        let mut child = Self { process, http: String::new(), grpc: String::new(), metrics: String::new() };
        let mut line = String::new();
        let out = out.context("cannot read what the server says")?;
        BufReader::new(out.take(ANNOUNCEMENT_BYTES)).read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "the server ended before it was ready; what it said is above");
        let told: Announcement = serde_json::from_str(&line).context("the server's announcement")?;
        if !told.ready {
            let failed = told.models.iter().find(|model| model.state != "READY");
            let why = failed.map_or_else(String::new, |model| format!(": {}: {}", model.name, model.reason));
            anyhow::bail!("a model did not load{why}");
        }
        (child.http, child.grpc, child.metrics) = (told.http, told.grpc, told.metrics);
        for model in &repository.asked_for {
            models_command::load(&server_at(&child.http)?, model)?;
        }
        Ok(child)
    }

    /// What it counted so far.
    pub fn counted(&self) -> anyhow::Result<Counted> {
        let page = rest::wait_for(TIMEOUT, server_at(&self.metrics)?.call(Method::GET, "/metrics"))?;
        let page = std::str::from_utf8(&page).context("the server's metrics")?;
        let mut counted = Counted::default();
        for line in page.lines() {
            let count = || {
                let count = line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
                count.with_context(|| format!("the server's metrics: `{line}`"))
            };
            if line.starts_with(names::PREEMPTED.name) {
                counted.preempted = counted.preempted.saturating_add(count()?);
            }
            let labels = line.strip_prefix(names::REQUESTS.name).and_then(|rest| rest.strip_prefix('{'));
            let Some((_, model)) = labels.and_then(|labels| labels.split_once("model=\"")) else { continue };
            let Some((model, _)) = model.split_once('"') else { continue };
            let answered = counted.answered.entry(model.to_owned()).or_default();
            *answered = answered.saturating_add(count()?);
        }
        Ok(counted)
    }

    /// Drains the server and waits for its exit.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.terminate();
        let status = self.process.wait().context("cannot wait for the server")?;
        anyhow::ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            // The process may have exited already.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.terminate();
            // There is no recovery if waiting for the process fails.
            let _ = self.process.wait();
        }
    }
}

fn server_at(address: &str) -> anyhow::Result<Server> {
    Server::new(address, &CredentialArgs::default())
}
