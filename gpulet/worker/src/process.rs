//! A worker process, from its start to its end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded, unbounded};
use gpulet::{DeviceError, PartitionWatch};
use rustix::process::{Pid, PidfdFlags, Signal, getpriority_process, pidfd_open, pidfd_send_signal};

use crate::core_time::CoreTimes;
use crate::limits::Limits;
use crate::wire::{Dying, Hello, Open, PROTOCOL, Ready, Refused, Socket, WireError};

/// Longest time from SIGKILL to the end of a process.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Longest time from the end of a process's socket to the end of the process.
const END_LIMIT: Duration = Duration::from_millis(500);

/// How a worker process is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program. Its `main` calls [`serve`](crate::serve) when it is started with `arguments`.
    pub program: PathBuf,
    /// Its name in process lists.
    pub name: OsString,
    /// Its command-line arguments.
    pub arguments: Vec<OsString>,
    /// Environment variables in addition to those of this process.
    pub variables: Vec<(OsString, OsString)>,
    /// An environment variable for the number of the gpulet's units, where each gpulet has its own process.
    pub units_variable: Option<OsString>,
}

impl WorkerCommand {
    /// This same program with one argument, `worker`. If its file was replaced since, the worker still runs the
    /// program that is running now.
    pub fn this_program() -> Self {
        let name = std::env::args_os().next().unwrap_or_else(|| OsString::from("tessera"));
        Self {
            program: PathBuf::from("/proc/self/exe"),
            name,
            arguments: vec![OsString::from("worker")],
            variables: Vec::new(),
            units_variable: None,
        }
    }

    /// The command of a process with one gpulet of `units` units.
    pub(crate) fn for_units(&self, units: u32) -> Self {
        let mut command = self.clone();
        if let Some(name) = command.units_variable.take() {
            command.variables.push((name, units.to_string().into()));
        }
        command
    }

    /// Starts the worker with its control socket as standard input, in its own process group: an interrupt from the
    /// terminal asks this process to drain, and must not kill the workers.
    fn start(&self, end: OwnedFd) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.arg0(&self.name).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::from(end)).stdout(Stdio::null()).process_group(0);
        command.spawn()
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Starts threads that do not inherit niceness and cores from the caller, because a process has those of the thread
/// that started it. Dropping it joins its own thread.
pub(crate) struct Starter {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Starter {
    /// A starter whose threads inherit from the thread that calls this.
    pub fn new(device: &str) -> std::io::Result<Self> {
        let (jobs, inbox) = unbounded::<Job>();
        let thread = thread::Builder::new()
            .name(format!("starter-{device}"))
            .spawn(move || inbox.into_iter().for_each(|job| job()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    fn spawn(&self, name: String, work: Job) -> std::io::Result<JoinHandle<()>> {
        let (sender, started) = bounded(1);
        let job = move || drop(sender.send(thread::Builder::new().name(name).spawn(work)));
        let ended = || std::io::Error::other("the thread that starts others has ended");
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(Box::new(job)).map_err(|_| ended())?;
        started.recv().map_err(|_| ended())?
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// The state of a process.
#[derive(Default)]
struct State {
    /// Why the server kills it.
    cause: Option<String>,
    /// Why it ended.
    end: Option<String>,
    /// Whether it was dropped, so that its end is expected.
    dropped: bool,
    /// Whether its end was reported to watches. The reaper may still be reporting.
    reported: bool,
    /// Lane and watch of each open gpulet.
    watches: BTreeMap<u64, (u32, Arc<dyn PartitionWatch>)>,
    opened: u64,
}

struct Shared {
    /// For errors and logs: ``worker 4711 of device `cpu0` ``.
    name: String,
    id: u32,
    pidfd: OwnedFd,
    /// Its niceness.
    priority: i32,
    state: Mutex<State>,
    ended: Condvar,
}

/// A worker process. Dropping it ends the process.
pub(crate) struct Process {
    shared: Arc<Shared>,
    control: Arc<Mutex<Socket>>,
    reaper: Option<JoinHandle<()>>,
    limits: Limits,
}

impl Process {
    /// Starts a process and waits until it has made its device. Returns the units of the device too.
    pub fn start(
        command: &WorkerCommand,
        hello: &Hello,
        limits: Limits,
        starter: &Starter,
    ) -> Result<(Self, u32), DeviceError> {
        let device = hello.device.clone();
        let refuse = |reason: String| DeviceError(format!("device `{device}`: worker: {reason}"));
        let (control, end) = Socket::pair().map_err(|error| refuse(error.to_string()))?;
        let control = Arc::new(Mutex::new(control));
        let reaper_control = Arc::clone(&control);
        let (sender, started) = bounded(1);
        let (command, of_device) = (command.clone(), device.clone());
        let reap = move || {
            let begun = command.start(end).and_then(|child| Shared::of(child, &of_device));
            match begun {
                Err(error) => drop(sender.send(Err(format!("{}: {error}", command.program.display())))),
                Ok((mut child, shared)) => {
                    let sent = sender.send(Ok(Arc::clone(&shared)));
                    drop((sent, sender));
                    // This thread must not end before the worker: its end sends the parent death signal.
                    shared.ended(&child.wait(), &reaper_control);
                }
            }
        };
        let reaper = starter
            .spawn(format!("reaper-{device}"), Box::new(reap))
            .map_err(|error| refuse(format!("cannot start a thread: {error}")))?;
        let shared = started
            .recv()
            .map_err(|_| refuse("the thread that started it has ended".to_owned()))?
            .map_err(|reason| refuse(format!("cannot be started: {reason}")))?;
        let process = Self { shared, control, reaper: Some(reaper), limits };
        let units = process.greet(hello)?;
        Ok((process, units))
    }

    fn greet(&self, hello: &Hello) -> Result<u32, DeviceError> {
        let mut control = locked(&self.control);
        let answer = control.send(hello, &[]).and_then(|()| control.receive(Some(self.limits.start)));
        drop(control);
        let refuse = |reason: String| Err(DeviceError(format!("{}: {reason}", self.shared.name)));
        match answer {
            Ok((Ok::<Ready, Refused>(ready), _)) => {
                if (ready.protocol, ready.version.as_str()) != (PROTOCOL, hello.version.as_str()) {
                    let (version, expected) = (ready.version, &hello.version);
                    return refuse(format!("expected version {expected} of the program, got {version}"));
                }
                Ok(ready.units)
            }
            Ok((Err(Refused(reason)), _)) => refuse(reason),
            Err(error) => Err(DeviceError(self.failed(error, self.limits.start, " to its start"))),
        }
    }

    /// Whether it is running and not being killed.
    pub fn is_alive(&self) -> bool {
        let state = self.shared.state();
        state.end.is_none() && state.cause.is_none()
    }

    /// Its niceness.
    pub fn priority(&self) -> i32 {
        self.shared.priority
    }

    /// Core time of its threads so far. Meaningless after it ended.
    pub fn core_times(&self) -> CoreTimes {
        CoreTimes::of(self.shared.id, self.shared.priority)
    }

    /// Sends the request to open a gpulet.
    pub fn open(&self, open: &Open, end: BorrowedFd<'_>) -> Result<(), WireError> {
        locked(&self.control).send(open, &[end])
    }

    /// Adds a watch that is told when the process ends. Returns the token for [`unwatch`](Self::unwatch).
    pub fn watch(&self, lane: u32, watch: Arc<dyn PartitionWatch>) -> Result<u64, DeviceError> {
        let mut state = self.shared.state();
        if let Some(reason) = &state.end {
            return Err(DeviceError(reason.clone()));
        }
        state.opened += 1;
        let token = state.opened;
        state.watches.insert(token, (lane, watch));
        Ok(token)
    }

    /// Removes a watch, if the process has not ended yet.
    pub fn unwatch(&self, token: u64) {
        let watch = self.shared.state().watches.remove(&token);
        drop(watch);
    }

    /// Handles a failed conversation: kills the process unless it has ended, because its later messages could not be
    /// matched to requests. Returns why it ended.
    pub fn failed(&self, error: WireError, limit: Duration, what: &str) -> String {
        match error {
            WireError::Ended if self.shared.has_ended_within(END_LIMIT) => self.shared.reason(),
            WireError::Ended => self.kill("closed a socket that is in use"),
            WireError::Late => self.kill(&format!("no answer for {} ms{what}", limit.as_millis())),
            other => self.kill(&format!("{other}{what}")),
        }
    }

    /// Kills it and returns the reason that is reported, which differs from `cause` if it had ended before.
    pub fn kill(&self, cause: &str) -> String {
        self.shared.kill(Some(cause));
        self.shared.has_ended_within(KILL_LIMIT);
        self.shared.reason()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.shared.state().dropped = true;
        locked(&self.control).hang_up();
        if !self.shared.has_ended_within(self.limits.close) {
            tracing::warn!(worker = self.shared.name, "killed: it did not end in time");
            self.shared.kill(None);
        }
        // While the reaper reports to watches, joining it could deadlock: a watch may drop this, or wait for its drop.
        if self.shared.has_ended_within(KILL_LIMIT)
            && !self.shared.state().reported
            && let Some(reaper) = self.reaper.take()
        {
            let _panicked = reaper.join();
        }
    }
}

impl Shared {
    fn of(mut child: Child, device: &str) -> std::io::Result<(Child, Arc<Self>)> {
        let id = child.id();
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => {
                let name = format!("worker {id} of device `{device}`");
                // A process inherits the niceness of the thread that starts it.
                let priority = getpriority_process(None).unwrap_or_default();
                let (state, ended) = (Mutex::default(), Condvar::new());
                Ok((child, Arc::new(Self { name, id, pidfd, priority, state, ended })))
            }
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error.into())
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn kill(&self, cause: Option<&str>) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        if state.cause.is_none() {
            state.cause = cause.map(str::to_owned);
        }
        if let Err(error) = pidfd_send_signal(self.pidfd.as_fd(), Signal::KILL) {
            tracing::error!(worker = self.name, %error, "cannot be killed");
        }
    }

    fn has_ended_within(&self, limit: Duration) -> bool {
        let wait = self.ended.wait_timeout_while(self.state(), limit, |state| state.end.is_none());
        let (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        state.end.is_some()
    }

    /// Why it ended or is being killed.
    fn reason(&self) -> String {
        let state = self.state();
        let cause = || state.cause.as_ref().map(|cause| format!("{}: {cause}", self.name));
        state.end.clone().or_else(cause).unwrap_or_else(|| format!("{}: was closed", self.name))
    }

    /// Records and reports the end of the process, after it was reaped.
    fn ended(&self, status: &std::io::Result<ExitStatus>, control: &Mutex<Socket>) {
        let status = match status {
            Ok(status) => describe(*status),
            Err(error) => format!("ended with an unknown status: {error}"),
        };
        // `greet` holds the lock while it waits, so the greeting is not taken for a dying message here.
        let dying = locked(control).receive::<Dying>(Some(Duration::from_millis(1)));
        let dying = dying.ok().map(|(Dying(reason), _)| reason);
        let mut state = self.state();
        let reason = state.cause.clone().or(dying).unwrap_or(status);
        let reason = format!("{}: {reason}", self.name);
        state.end = Some(reason.clone());
        let (watches, dropped) = (std::mem::take(&mut state.watches), state.dropped);
        state.reported = !watches.is_empty();
        drop(state);
        self.ended.notify_all();
        if !dropped {
            tracing::error!(reason, gpulets = watches.len(), "a worker process failed");
        }
        for (lane, watch) in watches.into_values() {
            watch.failed(lane, &reason);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe(status: ExitStatus) -> String {
    if let Some(code) = status.code() {
        return format!("exited with status {code}");
    }
    let named = [
        (Signal::KILL, "SIGKILL"),
        (Signal::TERM, "SIGTERM"),
        (Signal::INT, "SIGINT"),
        (Signal::HUP, "SIGHUP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::BUS, "SIGBUS"),
        (Signal::ILL, "SIGILL"),
        (Signal::FPE, "SIGFPE"),
    ];
    let number = status.signal().unwrap_or_default();
    match named.iter().find(|(signal, _)| signal.as_raw() == number) {
        Some((_, name)) => format!("killed by {name}"),
        None => format!("killed by signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_described() {
        let described = [0x0300, 9, 11, 35].map(|raw| describe(ExitStatus::from_raw(raw)));
        assert_eq!(
            described,
            ["exited with status 3", "killed by SIGKILL", "killed by SIGSEGV", "killed by signal 35"]
        );
    }
}
