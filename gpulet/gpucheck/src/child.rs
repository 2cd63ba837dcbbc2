//! The child process, which uses the GPU and may be killed at any time.

use std::io;
use std::time::{Duration, Instant};

use gpulet_cuda::Found;

use crate::arguments::{Arguments, Task};
use crate::bench::{Bench, Stop, find_gpu};
use crate::check::Check;
use crate::checks;
use crate::exit;
use crate::makers::{self, Engine};
use crate::report::{Fact, Report};

/// Runs a task in this process and returns its exit code.
///
/// # Errors
/// The command line is wrong.
pub fn run(task: Task, arguments: &Arguments) -> Result<u8, String> {
    let mut stdout = io::stdout();
    let found = match find_gpu(arguments.device) {
        Ok(found) => found,
        Err((exit::MISUSE, problem)) => return Err(problem),
        Err((code, problem)) => {
            eprintln!("gpucheck: {problem}");
            return Ok(code);
        }
    };
    let engine = |needed| match needed {
        true => makers::onnx(arguments.onnxruntime.as_deref()),
        false => Err("this check needs no models".to_owned()),
    };
    let mut report = Report::new(&mut stdout);
    match task {
        Task::Check(check) => {
            let mut bench = bench(found, engine(check.needs_models()), arguments, report, check.time());
            Ok(ended(checks::run(check, &mut bench), check.name(), &mut bench.report))
        }
        Task::Share => {
            let time = Check::Libraries.time();
            let mut bench = bench(found, engine(true), arguments, report, time);
            Ok(ended(checks::share_task(&mut bench), "libraries.share", &mut bench.report))
        }
        Task::Fault => Ok(checks::fault_task(&found, &mut report)),
        Task::Index(operator) => Ok(checks::index_task(operator, &found, &engine(true), &mut report)),
        Task::Health => Ok(checks::health_task(&found)),
    }
}

fn bench<'a>(
    found: Found,
    engine: Engine,
    arguments: &Arguments,
    report: Report<'a>,
    time: Duration,
) -> Bench<'a> {
    Bench {
        found,
        report,
        until: Instant::now() + arguments.seconds.map_or(time, Duration::from_secs),
        engine,
        models: arguments.models.clone(),
        profiles: arguments.profiles.clone(),
        onnxruntime: arguments.onnxruntime.clone(),
    }
}

/// Reports an aborted check and returns the exit code.
fn ended(result: Result<(), Stop>, name: &str, report: &mut Report<'_>) -> u8 {
    if let Err(stop) = result {
        let fact = Fact::new(format!("{name}.aborted"), "10.4");
        report.add(&fact.ok(false).detail(stop.to_string()));
    }
    if report.failed() == 0 { exit::SUCCESS } else { exit::FAILED }
}
