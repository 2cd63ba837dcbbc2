//! The process that asks nothing itself: it starts a child for each question, passes its answers on, and ends it when
//! its time is over. A kernel that runs cannot be called back, and a fault poisons a process; neither reaches this one.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use gpulet_cuda::{Found, dotted};
use serde_json::json;

use crate::answer::{Answers, Fact};
use crate::arguments::{Arguments, Errand};
use crate::question::{GRACE, Question};
use crate::{child, exit};

/// What became of a child.
pub(crate) struct Ended {
    /// How it ended; none: it was ended, for its time was over.
    pub(crate) status: Option<ExitStatus>,
    /// From its start to its end.
    pub(crate) took: Duration,
}

impl Ended {
    /// Its exit code; none where it was ended or died.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status?.code()
    }
}

/// Runs a child for at most so long, and hears each answer as it comes. Lines that are no answers go to standard error.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn attend(
    errand: Errand,
    arguments: &Arguments,
    time: Duration,
    mut hear: impl FnMut(Fact),
) -> Result<Ended, String> {
    let begun = Instant::now();
    let started = child::command(errand, arguments, time).and_then(|mut command| command.spawn());
    let mut process =
        started.map_err(|error| format!("cannot start a process for `{}`: {error}", errand.word()))?;
    let lines = listen(&mut process);
    let until = begun + time + GRACE;
    let status = loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(fact) => hear(fact),
                Err(_) => eprintln!("  {line}"),
            },
            Err(RecvTimeoutError::Timeout) => {
                // It may have ended just now; then there is nothing to end.
                let _ = process.kill();
                let _ = process.wait();
                break None;
            }
            Err(RecvTimeoutError::Disconnected) => break wait(&mut process, until),
        }
    };
    Ok(Ended { status, took: begun.elapsed() })
}

/// Lines that a child writes, until it closes its end.
fn listen(process: &mut Child) -> mpsc::Receiver<String> {
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

/// Waits for a child that says nothing more: it is about to end, or hangs in its destructors.
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

/// Standard output, and a file beside it.
struct Both<'a> {
    first: &'a mut (dyn Write + Send),
    second: Option<File>,
}

impl Write for Both<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(file) = &mut self.second {
            file.write_all(bytes)?;
        }
        self.first.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.first.flush()
    }
}

/// Asks what the command line says and gives the exit code.
///
/// # Errors
/// A misuse: a device that is not there, a file that cannot be written.
pub fn supervise(arguments: &Arguments, stdout: &mut (dyn Write + Send)) -> Result<u8, String> {
    let open = |path| OpenOptions::new().create(true).append(true).open(path);
    let second = arguments.out.as_ref().map(|path| {
        open(path).map_err(|error| {
            format!("--out {}: expected a file that can be written: {error}", path.display())
        })
    });
    let mut both = Both { first: stdout, second: second.transpose()? };
    let mut answers = Answers::new(&mut both);
    let found = match child::find(arguments.device) {
        Ok(found) => found,
        Err((exit::NO_GPU, absent)) => {
            eprintln!("gpucheck: {absent}");
            answers.say(&Fact::new("gpucheck.probe", "3").ok(false).detail(absent));
            return Ok(exit::NO_GPU);
        }
        Err((_, misuse)) => return Err(misuse),
    };
    introduce(&mut answers, &found);
    if arguments.probe {
        return Ok(exit::ANSWERED);
    }
    for question in arguments.asked() {
        attend_to(question, arguments, &mut answers)?;
    }
    let (count, failed, unasked) = (answers.count(), answers.failed(), answers.unasked());
    eprintln!("{count} answers: {failed} not as they must be, {unasked} not asked");
    Ok(if failed == 0 { exit::ANSWERED } else { exit::FAILED })
}

/// Which GPU all that follows is about.
fn introduce(answers: &mut Answers<'_>, found: &Found) {
    let driver = dotted(found.driver_version);
    eprintln!("gpu{}: {}, {} SMs, driver {driver}", found.ordinal, found.name, found.sms);
    let detail = json!({
        "uuid": found.uuid, "sms": found.sms, "memory_bytes": found.memory_bytes, "driver": driver,
        "capability": found.capability, "mig": found.mig, "version": env!("CARGO_PKG_VERSION"),
    });
    answers.say(&Fact::new("gpucheck.device", "3").value(found.name.as_str()).detail(detail));
}

fn attend_to(question: Question, arguments: &Arguments, answers: &mut Answers<'_>) -> Result<(), String> {
    let time = arguments.seconds.map_or(question.time(), Duration::from_secs);
    eprintln!("{} (at most {} s)", question.word(), time.as_secs());
    let ended = attend(Errand::Ask(question), arguments, time, |fact| answers.say(&fact))?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    let well = matches!(code, Some(exit::ANSWERED | exit::FAILED));
    let how = match (&ended.status, well) {
        (_, true) => "ended by itself".to_owned(),
        (Some(status), false) => format!("died: {status}"),
        (None, _) => "was ended: its time was over".to_owned(),
    };
    let took = ended.took.as_secs_f64();
    eprintln!("  {how} after {took:.1} s");
    let fact = Fact::new(format!("{}.ended", question.word()), "10.4").value(took).unit("s");
    answers.say(&fact.ok(well).detail(how));
    Ok(())
}
