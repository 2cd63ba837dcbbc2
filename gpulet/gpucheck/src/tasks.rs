//! Tasks in child processes: started, read, and killed when their time is over. A running kernel cannot be cancelled, and
//! a fault ends the use of a GPU in its process. Neither affects the process that starts the task.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use gpulet_cuda::{ENVIRONMENT, MPS_SHARE_VARIABLE};

use crate::arguments::{Arguments, Task};
use crate::check::GRACE;
use crate::report::Fact;

/// Share of the GPU for a process under MPS, in percent.
pub(crate) const MPS_SHARE: u32 = 50;

/// This program as a child that runs a task and writes its facts to a pipe. Sets the environment variables that must be set
/// before a GPU is taken.
fn command(task: Task, arguments: &Arguments, time: Duration) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", task.name()]);
    command.args(["--device", &arguments.device.to_string()]);
    command.args(["--seconds", &time.as_secs().max(1).to_string()]);
    command.arg("--models").arg(&arguments.models).arg("--profiles").arg(&arguments.profiles);
    if let Some(library) = &arguments.onnxruntime {
        command.arg("--onnxruntime").arg(library);
    }
    if task == Task::Share {
        command.env(MPS_SHARE_VARIABLE, MPS_SHARE.to_string());
    }
    command.envs(ENVIRONMENT).stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// The end of a child process.
pub(crate) struct Ended {
    /// None if it was killed because its time was over.
    pub(crate) status: Option<ExitStatus>,
    /// Time from its start to its end.
    pub(crate) took: Duration,
}

impl Ended {
    /// Its exit code; none if it was killed or died.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status?.code()
    }
}

/// Runs a task for at most `time` plus [`GRACE`], and passes on each fact immediately. Lines that are not facts go to
/// standard error.
///
/// # Errors
/// The process cannot be started.
pub(crate) fn run_task(
    task: Task,
    arguments: &Arguments,
    time: Duration,
    mut on_fact: impl FnMut(Fact),
) -> Result<Ended, String> {
    let begun = Instant::now();
    let started = command(task, arguments, time).and_then(|mut command| command.spawn());
    let mut process =
        started.map_err(|error| format!("cannot start a process for `{}`: {error}", task.name()))?;
    let lines = read_lines(&mut process);
    let until = begun + time + GRACE;
    let status = loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(fact) => on_fact(fact),
                Err(_) => eprintln!("  {line}"),
            },
            Err(RecvTimeoutError::Timeout) => {
                // Fails only if it has just ended.
                let _ = process.kill();
                let _ = process.wait();
                break None;
            }
            Err(RecvTimeoutError::Disconnected) => break wait(&mut process, until),
        }
    };
    Ok(Ended { status, took: begun.elapsed() })
}

/// Lines that a child writes, until it closes the pipe.
fn read_lines(process: &mut Child) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let output = process.stdout.take();
    std::thread::spawn(move || {
        let lines = output.map(|output| BufReader::new(output).lines());
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Waits for a child that has closed the pipe: it is about to end, or hangs in its destructors.
fn wait(process: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match process.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            Ok(None) | Err(_) => {
                let _ = process.kill();
                let _ = process.wait();
                return None;
            }
        }
    }
}
