//! The process that asks: it has the GPU, and may be ended at any time.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpulet_cuda::{ENVIRONMENT, Found, probe};

use crate::answer::{Answers, Fact};
use crate::arguments::{Arguments, Errand};
use crate::bench::Bench;
use crate::question::Question;
use crate::{exit, makers};

/// A child of this program that runs an errand, its answers to be read. Variables that must be there before a GPU is
/// taken are set for it.
pub(crate) fn command(errand: Errand, arguments: &Arguments, time: Duration) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", errand.word()]);
    command.args(["--device", &arguments.device.to_string()]);
    command.args(["--seconds", &time.as_secs().max(1).to_string()]);
    command.arg("--models").arg(&arguments.models).arg("--profiles").arg(&arguments.profiles);
    if let Some(library) = &arguments.onnxruntime {
        command.arg("--onnxruntime").arg(library);
    }
    command.envs(ENVIRONMENT).stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// The GPU that is asked.
///
/// # Errors
/// Exit code and what to tell.
pub(crate) fn find(device: u32) -> Result<Found, (u8, String)> {
    let all = probe().map_err(|absent| (exit::NO_GPU, absent.to_string()))?;
    let count = all.len();
    let wanted = all.into_iter().find(|gpu| u32::try_from(gpu.ordinal) == Ok(device));
    wanted.ok_or_else(|| (exit::MISUSE, format!("--device {device}: expected a number below {count}")))
}

/// Runs an errand in this process and gives its exit code.
///
/// # Errors
/// A misuse.
pub fn ask(errand: Errand, arguments: &Arguments) -> Result<u8, String> {
    let mut stdout = io::stdout();
    let found = match find(arguments.device) {
        Ok(found) => found,
        Err((exit::MISUSE, said)) => return Err(said),
        Err((code, said)) => {
            eprintln!("gpucheck: {said}");
            return Ok(code);
        }
    };
    match errand {
        Errand::Ask(question) => Ok(ask_question(question, found, arguments, &mut stdout)),
        Errand::Fault => Ok(crate::question::suffer(&found, &mut Answers::new(&mut stdout))),
        Errand::Health => Ok(crate::question::recover(&found)),
    }
}

fn ask_question(
    question: Question,
    found: Found,
    arguments: &Arguments,
    lines: &mut (dyn Write + Send),
) -> u8 {
    let time = arguments.seconds.map_or(question.time(), Duration::from_secs);
    let mut bench = Bench {
        found,
        answers: Answers::new(lines),
        until: Instant::now() + time,
        engine: match question.needs_models() {
            true => makers::onnx(arguments),
            false => Err("is asked without models".to_owned()),
        },
        models: arguments.models.clone(),
        profiles: arguments.profiles.clone(),
    };
    if let Err(stop) = question.ask(&mut bench) {
        let fact = Fact::new(format!("{}.given_up", question.word()), "10.4");
        bench.answers.say(&fact.ok(false).detail(stop.to_string()));
    }
    if bench.answers.failed() == 0 { exit::ANSWERED } else { exit::FAILED }
}
