//! The process that asks: it has the GPU, and may be ended at any time.

use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpulet_cuda::{ENVIRONMENT, Found, MPS_SHARE_VARIABLE, probe};

use crate::answer::{Answers, Fact};
use crate::arguments::{Arguments, Errand};
use crate::bench::{Bench, Stop};
use crate::exit;
use crate::makers::{self, Engine};
use crate::question::{MPS_SHARE, Question, ask_with_share};

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
    if errand == Errand::Share {
        command.env(MPS_SHARE_VARIABLE, MPS_SHARE.to_string());
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
    let engine = |needed| match needed {
        true => makers::onnx(arguments.onnxruntime.as_deref()),
        false => Err("is asked without models".to_owned()),
    };
    let mut answers = Answers::new(&mut stdout);
    match errand {
        Errand::Ask(question) => {
            let mut bench =
                bench(found, engine(question.needs_models()), arguments, answers, question.time());
            Ok(ended(question.ask(&mut bench), question.word(), &mut bench.answers))
        }
        Errand::Share => {
            let time = Question::Libraries.time();
            let mut bench = bench(found, engine(true), arguments, answers, time);
            Ok(ended(ask_with_share(&mut bench), "libraries.share", &mut bench.answers))
        }
        Errand::Fault => Ok(crate::question::suffer(&found, &mut answers)),
        Errand::Index => Ok(crate::question::look_beyond(&found, &engine(true), &mut answers)),
        Errand::Health => Ok(crate::question::recover(&found)),
    }
}

fn bench<'a>(
    found: Found,
    engine: Engine,
    arguments: &Arguments,
    answers: Answers<'a>,
    time: Duration,
) -> Bench<'a> {
    Bench {
        found,
        answers,
        until: Instant::now() + arguments.seconds.map_or(time, Duration::from_secs),
        engine,
        models: arguments.models.clone(),
        profiles: arguments.profiles.clone(),
        onnxruntime: arguments.onnxruntime.clone(),
    }
}

/// Says how a question was given up, if it was. The exit code.
fn ended(asked: Result<(), Stop>, word: &str, answers: &mut Answers<'_>) -> u8 {
    if let Err(stop) = asked {
        let fact = Fact::new(format!("{word}.given_up"), "10.4");
        answers.say(&fact.ok(false).detail(stop.to_string()));
    }
    if answers.failed() == 0 { exit::ANSWERED } else { exit::FAILED }
}
