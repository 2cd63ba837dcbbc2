//! The Python process of one session.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

use super::environment::Interpreter;
use super::events::Events;
use super::host::HostSlot;
use super::output;
use super::packets::{Layout, PacketError, Packets};
use super::wire::{Start, Started};
use crate::background::set_idle_priority;

/// Time for `finalize`; then the process is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How often a process that should end is looked at.
const POLL: Duration = Duration::from_millis(5);

/// Runs what the first message holds. The runtime needs no files, so a server that is killed leaves none behind.
const BOOTSTRAP: &str = "\
import json, os, socket, sys, types
packet = socket.socket(fileno=os.dup(0)).recv(1 << 17)
for name, source in json.loads(packet[16:]):
    module = types.ModuleType(name)
    module.__file__ = 'tessera/' + name + '.py'
    sys.modules[name] = module
    exec(compile(source, module.__file__, 'exec'), module.__dict__)
sys.modules['tessera_runner'].main()
";

/// Modules of the runtime, in the order of their imports.
const RUNTIME: [(&str, &str); 2] = [
    ("triton_python_backend_utils", include_str!("runtime/triton_python_backend_utils.py")),
    ("tessera_runner", include_str!("runtime/runner.py")),
];

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts processes on a thread of its own: a process inherits the priority of the thread that starts it, and models are
/// loaded at background priority.
static STARTER: OnceLock<Option<mpsc::Sender<Job>>> = OnceLock::new();

/// Starts the thread that starts processes, which inherit the priority of the caller.
pub(crate) fn prepare() {
    STARTER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let run = move || {
            for (mut command, started) in inbox {
                // The caller waits.
                let _ = started.send(command.spawn());
            }
        };
        thread::Builder::new().name("python-starter".to_owned()).spawn(run).ok().map(|_| jobs)
    });
}

fn spawn(mut command: Command) -> io::Result<Child> {
    prepare();
    let Some(jobs) = STARTER.get().and_then(Option::as_ref) else { return command.spawn() };
    let (started, wait) = mpsc::channel();
    let ended = || io::Error::other("the thread that starts processes has ended");
    jobs.send((command, started)).map_err(|_| ended())?;
    wait.recv().map_err(|_| ended())?
}

/// What a process is started with.
pub(super) struct Setup {
    pub model: String,
    pub version: u64,
    /// Name of the main file.
    pub file: String,
    /// The model's folder.
    pub folder: String,
    pub config: Value,
    pub auto_complete: bool,
    pub interpreter: Interpreter,
    pub cores: Vec<usize>,
    pub idle_priority: bool,
    /// `CPU` or `GPU`, and the number of the GPU.
    pub device: (&'static str, u32),
    pub load_timeout: Duration,
    pub host: HostSlot,
}

/// A process with an initialized model.
pub(super) struct Process {
    pub commands: Packets,
    pub events: Arc<Events>,
    child: Child,
    model: String,
    instance: Instance,
}

impl Process {
    /// Starts a process and initializes the model. Also returns the completed configuration.
    pub fn start(setup: &Setup) -> Result<(Self, Value), String> {
        Self::ask(setup, "start")
    }

    /// The configuration after `auto_complete_config`, from a process that ends then.
    pub fn complete(setup: &Setup) -> Result<Value, String> {
        Self::ask(setup, "complete").map(|(_, config)| config)
    }

    fn ask(setup: &Setup, op: &'static str) -> Result<(Self, Value), String> {
        let (mut process, there) = Self::spawn(setup)?;
        let instance = process.instance.name();
        let (kind, device) = setup.device;
        let arguments = [
            ("model_instance_kind", kind.to_owned()),
            ("model_instance_name", instance.clone()),
            ("model_instance_device_id", device.to_string()),
            ("model_repository", setup.folder.clone()),
            ("model_version", setup.version.to_string()),
            ("model_name", setup.model.clone()),
        ];
        let start = Start {
            op,
            version: setup.version.to_string(),
            file: setup.file.strip_suffix(".py").unwrap_or(&setup.file),
            folder: setup.folder.clone(),
            config: &setup.config,
            auto_complete: setup.auto_complete,
            instance,
            arguments: arguments.into(),
        };
        let runtime = process.commands.send(&RUNTIME, &Layout::default(), None);
        let sent =
            runtime.and_then(|()| process.commands.send(&start, &Layout::default(), Some(there.as_fd())));
        drop(there);
        let step = if op == "start" { "initialize" } else { "auto_complete_config" };
        let received = sent.and_then(|()| process.commands.receive::<Started>(Some(setup.load_timeout)));
        match received {
            Ok(received) => match (received.head.error, received.head.config) {
                (Some(error), _) => Err(one_line(&error)),
                (None, Some(config)) => Ok((process, config)),
                (None, None) => Err("invalid message: no configuration".to_owned()),
            },
            Err(PacketError::Late) => {
                Err(format!("{step} took more than {:?}: `load_timeout` allows longer", setup.load_timeout))
            }
            Err(error) => Err(format!("{step}: {}", process.ended(error))),
        }
    }

    /// Starts a process. Also returns its end of the socket for events.
    fn spawn(setup: &Setup) -> Result<(Self, OwnedFd), String> {
        let program = &setup.interpreter.program;
        let refuse = |error: &dyn std::fmt::Display| format!("cannot start `{}`: {error}", program.display());
        let (commands, end) = Packets::pair().map_err(|error| refuse(&error))?;
        let (lines, output) = io::pipe().map_err(|error| refuse(&error))?;
        let second = output.try_clone().map_err(|error| refuse(&error))?;
        let mut command = Command::new(program);
        command.args(["-c", BOOTSTRAP]).stdin(Stdio::from(end));
        command.stdout(Stdio::from(OwnedFd::from(output))).stderr(Stdio::from(OwnedFd::from(second)));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONHOME");
        if let Some(environment) = &setup.interpreter.environment {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let path = std::iter::once(environment.join("bin")).chain(std::env::split_paths(&path));
            if let Ok(path) = std::env::join_paths(path) {
                command.env("PATH", path);
            }
            command.env("VIRTUAL_ENV", environment).env("LD_LIBRARY_PATH", libraries(environment));
        }
        // An interrupt from the terminal asks the server to drain, and must not end its models.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = spawn(command).map_err(|error| refuse(&error))?;
        pin(&child, &setup.cores, &setup.model);
        if setup.idle_priority
            && let Err(error) = set_idle_priority(child.id())
        {
            tracing::warn!(model = setup.model, %error, "the Python process runs at ordinary priority");
        }
        output::log_lines(setup.model.clone(), lines).map_err(|error| refuse(&error))?;
        let (events, there) = Events::start(&setup.model, &setup.host).map_err(|error| refuse(&error))?;
        let instance = Instance::of(&setup.model);
        Ok((Self { commands, events, child, model: setup.model.clone(), instance }, there))
    }

    /// Why a message was not sent or received: the end of the process, if it has ended.
    pub fn ended(&mut self, error: PacketError) -> String {
        if !matches!(error, PacketError::Ended) {
            return error.to_string();
        }
        match wait(&mut self.child, Duration::from_secs(1)) {
            Some(status) => format!("the Python process ended: {status}"),
            None => "the Python process closed its socket".to_owned(),
        }
    }

    /// Ends the process at once.
    pub fn kill(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        #[derive(serde::Serialize)]
        struct Stop {
            op: &'static str,
        }
        let until = Instant::now() + STOP_LIMIT;
        if matches!(self.child.try_wait(), Ok(None))
            && self.commands.send(&Stop { op: "stop" }, &Layout::default(), None).is_ok()
        {
            match self.commands.receive::<Started>(Some(STOP_LIMIT)) {
                Ok(received) => {
                    if let Some(error) = received.head.error {
                        tracing::warn!(model = self.model, error = one_line(&error), "finalize failed");
                    }
                }
                Err(PacketError::Ended) => {}
                Err(error) => tracing::warn!(model = self.model, %error, "finalize did not end"),
            }
        }
        if wait(&mut self.child, until.saturating_duration_since(Instant::now())).is_none() {
            tracing::warn!(model = self.model, "the Python process did not end and was killed");
            self.kill();
            let _ = self.child.wait();
        }
        self.events.fail_unfinished("the model was unloaded");
    }
}

/// Pins a process to the cores of its lane before it starts threads.
fn pin(child: &Child, cores: &[usize], model: &str) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    if cores.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    if let Err(error) = sched_setaffinity(Some(pid), &set) {
        tracing::warn!(model, %error, "the Python process runs unpinned");
    }
}

/// Waits for the end of a process.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(POLL),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Where the libraries of an environment lie.
fn libraries(environment: &Path) -> std::ffi::OsString {
    let mut path = environment.join("lib").into_os_string();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

/// The number of a session among those of its model.
struct Instance {
    model: String,
    number: u32,
}

static INSTANCES: Mutex<BTreeSet<(String, u32)>> = Mutex::new(BTreeSet::new());

impl Instance {
    fn of(model: &str) -> Self {
        let mut taken = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
        let number = (0..).find(|number| !taken.contains(&(model.to_owned(), *number))).unwrap_or(0);
        taken.insert((model.to_owned(), number));
        Self { model: model.to_owned(), number }
    }

    fn name(&self) -> String {
        format!("{}_0_{}", self.model, self.number)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let key = (std::mem::take(&mut self.model), self.number);
        INSTANCES.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }
}

pub(super) fn one_line(text: &str) -> String {
    super::super::guard::one_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_fits_into_the_first_packet() {
        let (mut here, there) = Packets::pair().unwrap();
        here.send(&RUNTIME, &Layout::default(), None).unwrap();
        let received = Packets::from(there).receive::<Vec<(String, String)>>(None).unwrap();
        assert_eq!(received.head.len(), RUNTIME.len());
        let encoded = serde_json::to_vec(&RUNTIME).unwrap();
        assert!(encoded.len() < 64 * 1024, "{}", encoded.len());
    }

    #[test]
    fn instances_of_a_model_have_the_smallest_free_numbers() {
        let first = Instance::of("numbered");
        let second = Instance::of("numbered");
        assert_eq!((first.name(), second.name()), ("numbered_0_0".to_owned(), "numbered_0_1".to_owned()));
        drop(first);
        assert_eq!(Instance::of("numbered").name(), "numbered_0_0");
    }
}
