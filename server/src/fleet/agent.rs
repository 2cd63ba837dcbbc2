//! The agent of a node of a fleet on Kubernetes, as a child process of the server.
//!
//! It is a program of its own, so that the server links no client of Kubernetes, and so that the credentials for the API server are
//! not in the process that reads the requests of clients. It ends when its standard input ends, so it does not outlive the server,
//! however that ends.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use node::config::Fleet;
use node::metrics::AgentMetrics;

use super::program::{missing_program, program};

/// Wait before the first restart. It doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest wait before a restart. An agent that ran for this long is restarted after the shortest one again.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long the end of the agent is waited for when the server stops.
const END: Duration = Duration::from_secs(5);

/// Keeps the agent running until it is stopped or dropped.
#[derive(Debug)]
pub struct AgentProcess {
    /// Dropped to stop.
    stop: Option<Sender<()>>,
    /// Held open while the agent runs.
    input: Arc<Mutex<Option<ChildStdin>>>,
    ended: Receiver<()>,
}

impl AgentProcess {
    /// Starts the agent, if the settings ask for one, for the server with this admin address. It may write files of models to the folder of
    /// the repository.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(
        settings: &Fleet,
        repository: Option<&Path>,
        admin: SocketAddr,
    ) -> anyhow::Result<Option<Self>> {
        let (Some(node), true) = (&settings.node, settings.agent) else { return Ok(None) };
        let mut command = command(settings, node, admin);
        if let Some(folder) = repository.filter(|folder| folder.is_dir()) {
            command.arg("--repository").arg(folder);
        }
        let child = command.spawn().with_context(|| format!("fleet.agent: {}", missing_program("agent")))?;
        let (stop, stopped) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let input = Arc::new(Mutex::new(None));
        let running = Running { command, input: Arc::clone(&input), stopped, metrics: AgentMetrics::new() };
        thread::Builder::new().name("tessera-agent".to_owned()).spawn(move || {
            running.keep(child);
            drop(end);
        })?;
        Ok(Some(Self { stop: Some(stop), input, ended }))
    }

    /// Ends the agent. Its models stay loaded. Blocks for at most 5 seconds.
    pub fn stop(mut self) {
        self.tell();
        if self.ended.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the agent of the fleet has not ended yet");
        }
    }

    fn tell(&mut self) {
        self.stop = None;
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.tell();
    }
}

fn command(settings: &Fleet, node: &str, admin: SocketAddr) -> Command {
    let mut command = program();
    command.args(["agent", "--until-input-ends", "--node", node, "--admin", &admin.to_string()]);
    command.args(["--metrics", &settings.agent_metrics.to_string()]).arg("--state").arg(&settings.state);
    if let Some(namespace) = &settings.namespace {
        command.args(["--namespace", namespace]);
    }
    if let Some(file) = &settings.agent_key_file {
        command.arg("--key-file").arg(file);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

/// What the thread of the agent works with.
struct Running {
    command: Command,
    input: Arc<Mutex<Option<ChildStdin>>>,
    stopped: Receiver<()>,
    metrics: AgentMetrics,
}

impl Running {
    /// Waits for the end of the agent, and starts it again until the server stops.
    fn keep(mut self, first: Child) {
        let (mut child, mut pause) = (Some(first), PAUSE_MIN);
        loop {
            let started = Instant::now();
            match child.take().map_or_else(|| self.command.spawn(), Ok) {
                Ok(child) => self.wait(child),
                Err(error) => tracing::error!(%error, "the agent of the fleet cannot be started"),
            }
            if started.elapsed() >= PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            if self.stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
            self.metrics.restarted();
        }
    }

    fn wait(&self, mut child: Child) {
        // `wait` would close the input, and so end the agent.
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = child.stdin.take();
        if self.is_stopped() {
            *self.input.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.metrics.running(true);
        let ended = child.wait();
        self.metrics.running(false);
        match ended {
            _ if self.is_stopped() => {}
            Ok(status) => tracing::error!(%status, "the agent of the fleet ended; it is started again"),
            Err(error) => tracing::error!(%error, "the agent of the fleet cannot be watched"),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.try_recv() == Err(mpsc::TryRecvError::Disconnected)
    }
}
