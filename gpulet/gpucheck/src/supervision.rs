//! The parent process, which touches no GPU: it runs each check in a child process and writes the facts of all.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Duration;

use gpulet_cuda::{Found, dotted};
use serde_json::json;

use crate::arguments::{Arguments, Task};
use crate::bench::find_gpu;
use crate::check::Check;
use crate::exit;
use crate::report::{Fact, Report};
use crate::tasks::run_task;

/// Standard output and a file.
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

/// Runs the checks of the command line and returns the exit code.
///
/// # Errors
/// The command line is wrong: the device does not exist, or a file cannot be written.
pub fn supervise(arguments: &Arguments, stdout: &mut (dyn Write + Send)) -> Result<u8, String> {
    let open = |path| OpenOptions::new().create(true).append(true).open(path);
    let second = arguments.out.as_ref().map(|path| {
        open(path).map_err(|error| {
            format!("--out {}: expected a file that can be written: {error}", path.display())
        })
    });
    let mut both = Both { first: stdout, second: second.transpose()? };
    let mut report = Report::new(&mut both);
    let found = match find_gpu(arguments.device) {
        Ok(found) => found,
        Err((exit::NO_GPU, problem)) => {
            eprintln!("gpucheck: {problem}");
            report.add(&Fact::new("gpucheck.probe", "3").ok(false).detail(problem));
            return Ok(exit::NO_GPU);
        }
        Err((_, misuse)) => return Err(misuse),
    };
    report_device(&mut report, &found);
    if arguments.probe {
        return Ok(exit::SUCCESS);
    }
    for check in arguments.checks() {
        run_check(check, arguments, &mut report)?;
    }
    let (count, failed, skipped) = (report.count(), report.failed(), report.skipped());
    eprintln!("{count} facts: {failed} not as required, {skipped} not checked");
    Ok(if failed == 0 { exit::SUCCESS } else { exit::FAILED })
}

/// Reports the GPU that all other facts are about.
fn report_device(report: &mut Report<'_>, found: &Found) {
    let driver = dotted(found.driver_version);
    eprintln!("gpu{}: {}, {} SMs, driver {driver}", found.ordinal, found.name, found.sms);
    let detail = json!({
        "uuid": found.uuid, "sms": found.sms, "memory_bytes": found.memory_bytes, "driver": driver,
        "capability": found.capability, "mig": found.mig, "version": env!("CARGO_PKG_VERSION"),
    });
    report.add(&Fact::new("gpucheck.device", "3").value(found.name.as_str()).detail(detail));
}

fn run_check(check: Check, arguments: &Arguments, report: &mut Report<'_>) -> Result<(), String> {
    let time = arguments.seconds.map_or(check.time(), Duration::from_secs);
    eprintln!("{} (at most {} s)", check.name(), time.as_secs());
    let ended = run_task(Task::Check(check), arguments, time, |fact| report.add(&fact))?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    let completed = matches!(code, Some(exit::SUCCESS | exit::FAILED));
    let how = match (&ended.status, completed) {
        (_, true) => "ended by itself".to_owned(),
        (Some(status), false) => format!("died: {status}"),
        (None, _) => "killed: its time was over".to_owned(),
    };
    let took = ended.took.as_secs_f64();
    eprintln!("  {how} after {took:.1} s");
    let fact = Fact::new(format!("{}.ended", check.name()), "10.4").value(took).unit("s");
    report.add(&fact.ok(completed).detail(how));
    Ok(())
}
