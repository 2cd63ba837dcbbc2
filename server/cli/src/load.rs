//! `tessera load`: sends a workload to a live server and measures the responses.

pub mod arguments;
pub mod interruption;
pub mod line;
mod outputs;
pub mod request;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use charts::number;
use loadtest::compare::compare;
use loadtest::{Drive, LoadError, Report, Session};
use node::environment::Environment;
use node::output;
use sim::Search;
use units::{flags, shell_word};
use workload::{Extent, Workload};

use arguments::{LoadAction, LoadArgs};
use line::Line;
use outputs::Outputs;

/// Exit code if the client could not keep up.
const NOT_KEPT_UP: u8 = 3;
/// Exit code after an interruption, as in shells.
const INTERRUPTED: u8 = 130;
/// Precision of the capacity search, as a fraction of the rate.
const CAPACITY_TOLERANCE: f64 = 0.02;
/// Maximum number of runs of a capacity search.
const TRIALS_MAX: u32 = 12;
/// Largest report to read for a comparison.
const REPORT_BYTES: u64 = 1 << 30;

/// Sends the workload, measures, and prints the report.
pub fn run(arguments: &LoadArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    if let Some(LoadAction::Compare { before, after, json }) = &arguments.action {
        return compare_files(before, after, *json, environment);
    }
    let workload = request::workload(arguments)?;
    let drive = request::drive(arguments, &workload)?;
    let mut settings = request::settings(&arguments.client, &arguments.url)?;
    settings.keep_seconds = arguments.hdr.is_some();
    let outputs = Outputs::open(arguments)?;
    let stop = interruption::flag()?;
    let line = Line::new(environment.stderr_is_terminal);
    line.say(&format!("asking {}", arguments.url));
    let report = Session::open(&workload, settings)
        .map_err(|error| with_command(error, environment))
        .and_then(|session| measure(&session, arguments, &workload, &drive, &stop, &line));
    line.clear();
    let report = report?;
    outputs.write(&report, &command(environment), environment.stdout_is_coloured)?;
    Ok(exit_code(&report))
}

fn measure(
    session: &Session,
    arguments: &LoadArgs,
    workload: &Workload,
    drive: &Drive,
    stop: &Arc<AtomicBool>,
    line: &Line,
) -> anyhow::Result<Report> {
    if !arguments.find_capacity {
        return Ok(session.run(workload, drive, stop, &mut |live| line.show("", live))?);
    }
    anyhow::ensure!(
        arguments.attainment > 0.0 && arguments.attainment <= 1.0,
        "--attainment: expected more than 0 and at most 1, got {}",
        arguments.attainment
    );
    let search =
        Search { attainment: arguments.attainment, tolerance: CAPACITY_TOLERANCE, trials_max: TRIALS_MAX };
    let Extent::Time(time) = workload.extent else {
        anyhow::bail!(
            "--find-capacity: expected a workload that ends by time: give the --duration of a trial"
        );
    };
    let report = session.capacity(workload, &search, time, stop, &mut |trials, scale, live| {
        let rate = workload.mean_rate() * scale;
        line.show(&format!("trial {} at {}/s  ", trials.len() + 1, number(rate)), live);
    })?;
    Ok(report)
}

fn exit_code(report: &Report) -> ExitCode {
    if report.interrupted {
        ExitCode::from(INTERRUPTED)
    } else if report.client.late_from.is_some() {
        ExitCode::from(NOT_KEPT_UP)
    } else {
        ExitCode::SUCCESS
    }
}

/// The error, with the command to run instead if shapes are missing.
fn with_command(error: LoadError, environment: &Environment) -> anyhow::Error {
    match error {
        LoadError::Shapes(missing) => {
            let shapes = flags("--shape", missing.flags.iter().cloned());
            anyhow::anyhow!("{missing}: `{}{shapes}`", command(environment))
        }
        other => other.into(),
    }
}

/// The command line, to repeat the run.
fn command(environment: &Environment) -> String {
    let words = without_key(environment.command_line.iter().skip(1).map(String::as_str));
    let words = words.iter().map(|word| shell_word(word));
    std::iter::once("tessera".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// A key does not belong in a report: it is read from the environment when the run is repeated.
fn without_key<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let (mut kept, mut is_key) = (Vec::new(), false);
    for word in words {
        if !is_key && word != "--key" && !word.starts_with("--key=") {
            kept.push(word);
        }
        is_key = word == "--key";
    }
    kept
}

fn compare_files(
    before: &Path,
    after: &Path,
    json: bool,
    environment: &Environment,
) -> anyhow::Result<ExitCode> {
    let read = |path: &Path| -> anyhow::Result<Report> {
        let text = node::files::read_text(path, REPORT_BYTES)?;
        Report::read(&text).with_context(|| path.display().to_string())
    };
    let comparison = compare(&read(before)?, &read(after)?);
    if json {
        output::line(&serde_json::to_string(&comparison)?);
    } else {
        output::write(comparison.text(environment.stdout_is_coloured).as_bytes());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_reports_have_no_key() {
        for words in [["load", "--key", "s3cret", "a.toml"].as_slice(), &["load", "--key=s3cret", "a.toml"]] {
            assert_eq!(without_key(words.iter().copied()), ["load", "a.toml"]);
        }
    }
}
