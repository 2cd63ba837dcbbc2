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
use crate::wire::{Dying, Hello, Open, PROTOCOL, Ready, Refused, Socket, WireDevice, WireError};

/// How long the system may take to end a process that was killed.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// How long the end of a process may be behind the end of what it said.
const END_LIMIT: Duration = Duration::from_millis(500);

/// How a worker process is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program, whose `main` calls [`serve`](crate::serve) when it is started so.
    pub program: PathBuf,
    /// What it is called in lists of processes.
    pub name: OsString,
    /// What it is told on its command line.
    pub arguments: Vec<OsString>,
    /// Variables that it has besides those of this process.
    pub variables: Vec<(OsString, OsString)>,
    /// A variable that gets the number of the gpulet's units, where each gpulet has a process of its own.
    pub units_variable: Option<OsString>,
}

impl WorkerCommand {
    /// This same program with one argument, `worker`. It is the program that runs, even where its file was replaced
    /// since it was started.
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

    /// The same for a process that is to have a gpulet of so many units.
    pub(crate) fn for_units(&self, units: u32) -> Self {
        let mut command = self.clone();
        if let Some(name) = command.units_variable.take() {
            command.variables.push((name, units.to_string().into()));
        }
        command
    }

    /// The worker's end of the conversation becomes its standard input. The worker is in a process group of its own:
    /// an interrupt from the terminal asks this process to drain, and must not end what it drains.
    fn start(&self, end: OwnedFd) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.arg0(&self.name).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::from(end)).stdout(Stdio::null()).process_group(0);
        command.spawn()
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Starts threads that inherit neither niceness nor cores from whoever happens to want a process: a process has what
/// the thread had that started it. Its own thread has ended when this is dropped.
pub(crate) struct Starter {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Starter {
    /// A starter whose threads are as the calling one is now.
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
        let gone = || std::io::Error::other("the thread that starts others is gone");
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(Box::new(job)).map_err(|_| gone())?;
        started.recv().map_err(|_| gone())?
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

/// What is known of the life of a process.
#[derive(Default)]
struct Life {
    /// Why this process ends it.
    cause: Option<String>,
    /// Why it ended.
    end: Option<String>,
    /// Whether nobody needs it any more.
    unneeded: bool,
    /// Whether somebody is told of its end, which may take until the process is dropped.
    told: bool,
    /// Gpulets in it and who hears of their loss.
    watches: BTreeMap<u64, (u32, Arc<dyn PartitionWatch>)>,
    opened: u64,
}

struct Shared {
    /// For messages: ``worker 4711 of device `cpu0` ``.
    name: String,
    id: u32,
    pidfd: OwnedFd,
    /// Its niceness.
    priority: i32,
    life: Mutex<Life>,
    ended: Condvar,
}

/// A worker process. It ends when this is dropped.
pub(crate) struct Process {
    shared: Arc<Shared>,
    control: Arc<Mutex<Socket>>,
    reaper: Option<JoinHandle<()>>,
    limits: Limits,
}

impl Process {
    /// Starts a process and waits until it has its device, which comes with it.
    pub fn start(
        command: &WorkerCommand,
        hello: &Hello,
        limits: Limits,
        starter: &Starter,
    ) -> Result<(Self, WireDevice), DeviceError> {
        let device = hello.device.clone();
        let refuse = |reason: String| DeviceError(format!("device `{device}`: worker: {reason}"));
        let (control, end) = Socket::pair().map_err(|error| refuse(error.to_string()))?;
        let control = Arc::new(Mutex::new(control));
        let last_words = Arc::clone(&control);
        let (sender, started) = bounded(1);
        let (command, of_device) = (command.clone(), device.clone());
        let reap = move || {
            let begun = command.start(end).and_then(|child| Shared::of(child, &of_device));
            match begun {
                Err(error) => drop(sender.send(Err(format!("{}: {error}", command.program.display())))),
                Ok((mut child, shared)) => {
                    let told = sender.send(Ok(Arc::clone(&shared)));
                    drop((told, sender));
                    // The signal that ends the worker when its parent dies is sent when this thread ends.
                    shared.ended(&child.wait(), &last_words);
                }
            }
        };
        let reaper = starter
            .spawn(format!("reaper-{device}"), Box::new(reap))
            .map_err(|error| refuse(format!("cannot start a thread: {error}")))?;
        let shared = started
            .recv()
            .map_err(|_| refuse("the thread that started it is gone".to_owned()))?
            .map_err(|reason| refuse(format!("cannot be started: {reason}")))?;
        let process = Self { shared, control, reaper: Some(reaper), limits };
        let found = process.greet(hello)?;
        Ok((process, found))
    }

    fn greet(&self, hello: &Hello) -> Result<WireDevice, DeviceError> {
        let mut control = locked(&self.control);
        let answer = control.send(hello, &[]).and_then(|()| control.receive(Some(self.limits.start)));
        drop(control);
        let refuse = |reason: String| Err(DeviceError(format!("{}: {reason}", self.shared.name)));
        match answer {
            Ok((Ok::<Ready, Refused>(ready), _)) => {
                if (ready.protocol, ready.version.as_str()) != (PROTOCOL, hello.version.as_str()) {
                    let (version, expected) = (ready.version, &hello.version);
                    return refuse(format!("is version {version} of the program: expected {expected}"));
                }
                Ok(ready.device)
            }
            Ok((Err(Refused(reason)), _)) => refuse(reason),
            Err(error) => Err(DeviceError(self.failed(error, self.limits.start, " to its start"))),
        }
    }

    /// Whether it can still run something.
    pub fn is_alive(&self) -> bool {
        let life = self.shared.life();
        life.end.is_none() && life.cause.is_none()
    }

    /// Its niceness.
    pub fn priority(&self) -> i32 {
        self.shared.priority
    }

    /// What its threads had of the cores until now. Means nothing once it ended.
    pub fn core_times(&self) -> CoreTimes {
        CoreTimes::of(self.shared.id, self.shared.priority)
    }

    /// Asks for a gpulet.
    pub fn open(&self, open: &Open, end: BorrowedFd<'_>) -> Result<(), WireError> {
        locked(&self.control).send(open, &[end])
    }

    /// From now on somebody hears when it ends.
    pub fn watch(&self, lane: u32, watch: Arc<dyn PartitionWatch>) -> Result<u64, DeviceError> {
        let mut life = self.shared.life();
        if let Some(reason) = &life.end {
            return Err(DeviceError(reason.clone()));
        }
        life.opened += 1;
        let token = life.opened;
        life.watches.insert(token, (lane, watch));
        Ok(token)
    }

    /// Nobody wants to hear any more.
    pub fn unwatch(&self, token: u64) {
        let watch = self.shared.life().watches.remove(&token);
        drop(watch);
    }

    /// What became of a message that did not arrive in time, or at all: ends the process if it did not end by
    /// itself, for nothing that it says later could be understood. Gives the reason.
    pub fn failed(&self, error: WireError, limit: Duration, what: &str) -> String {
        match error {
            WireError::Ended if self.shared.has_ended_within(END_LIMIT) => self.shared.reason(),
            WireError::Ended => self.kill("hung up in the middle of a conversation"),
            WireError::Late => self.kill(&format!("no answer for {} ms{what}", limit.as_millis())),
            other => self.kill(&format!("{other}{what}")),
        }
    }

    /// Ends it at once. Gives the reason that everybody hears, which is another one if it ended before.
    pub fn kill(&self, cause: &str) -> String {
        self.shared.kill(Some(cause));
        self.shared.has_ended_within(KILL_LIMIT);
        self.shared.reason()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.shared.life().unneeded = true;
        locked(&self.control).hang_up();
        if !self.shared.has_ended_within(self.limits.close) {
            tracing::warn!(worker = self.shared.name, "did not end by itself and is killed");
            self.shared.kill(None);
        }
        // Not where somebody is told of the loss: that may be who drops this, or be waiting for who does.
        if self.shared.has_ended_within(KILL_LIMIT)
            && !self.shared.life().told
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
                // A process begins as the thread that starts it.
                let priority = getpriority_process(None).unwrap_or_default();
                let (life, ended) = (Mutex::default(), Condvar::new());
                Ok((child, Arc::new(Self { name, id, pidfd, priority, life, ended })))
            }
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error.into())
            }
        }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        locked(&self.life)
    }

    fn kill(&self, cause: Option<&str>) {
        let mut life = self.life();
        if life.end.is_some() {
            return;
        }
        if life.cause.is_none() {
            life.cause = cause.map(str::to_owned);
        }
        if let Err(error) = pidfd_send_signal(self.pidfd.as_fd(), Signal::KILL) {
            tracing::error!(worker = self.name, %error, "cannot be killed");
        }
    }

    fn has_ended_within(&self, limit: Duration) -> bool {
        let wait = self.ended.wait_timeout_while(self.life(), limit, |life| life.end.is_none());
        let (life, _) = wait.unwrap_or_else(PoisonError::into_inner);
        life.end.is_some()
    }

    /// Why it ended, or has to.
    fn reason(&self) -> String {
        let life = self.life();
        let cause = || life.cause.as_ref().map(|cause| format!("{}: {cause}", self.name));
        life.end.clone().or_else(cause).unwrap_or_else(|| format!("{}: is not needed any more", self.name))
    }

    /// The process is gone and was waited for.
    fn ended(&self, status: &std::io::Result<ExitStatus>, last_words: &Mutex<Socket>) {
        let status = match status {
            Ok(status) => in_words(*status),
            Err(error) => format!("ended, and how is not known: {error}"),
        };
        // Whoever waits for a greeting has this, and has the greeting before it is taken for a last word.
        let said = locked(last_words).receive::<Dying>(Some(Duration::from_millis(1)));
        let last_word = said.ok().map(|(Dying(reason), _)| reason);
        let mut life = self.life();
        let reason = life.cause.clone().or(last_word).unwrap_or(status);
        let reason = format!("{}: {reason}", self.name);
        life.end = Some(reason.clone());
        let (watches, unneeded) = (std::mem::take(&mut life.watches), life.unneeded);
        life.told = !watches.is_empty();
        drop(life);
        self.ended.notify_all();
        if !unneeded {
            tracing::error!(reason, gpulets = watches.len(), "a worker process is lost");
        }
        for (lane, watch) in watches.into_values() {
            watch.lost(lane, &reason);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn in_words(status: ExitStatus) -> String {
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
    fn ends_are_told_in_words() {
        let words = [0x0300, 9, 11, 35].map(|raw| in_words(ExitStatus::from_raw(raw)));
        assert_eq!(
            words,
            ["exited with status 3", "killed by SIGKILL", "killed by SIGSEGV", "killed by signal 35"]
        );
    }
}
