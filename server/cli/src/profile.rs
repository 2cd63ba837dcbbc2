//! `tessera profile` measures how long batches of each model take on this machine's cores, for `tessera plan`.
//!
//! A model runs as in a lane of `tessera serve`: with the same engine, options and pinning. Cells that are in the file
//! are not measured again, so an interrupted run resumes where it stopped.

mod aggressors;
pub mod arguments;
pub mod bench;
mod contention;
mod cpu_wait;
mod grid;
mod known_models;
pub mod machine;
mod page;
pub mod progress;
mod record;
mod repeat;
mod report;
mod resident;
pub mod rotation;
mod runs;
mod selection;
pub mod subjects;
mod traffic;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use gpulet_core::profile::Source as Origin;
use models::Loader;
use node::catalog::Source;
use node::config::Config;
use node::environment::Environment;
use node::output;
use node::profiles;

use crate::load::interruption;
use arguments::ProfileArgs;
pub use bench::cores_words;
use bench::{Bench, Findings, Recorder};
use machine::Machine;
use progress::Bar;
use report::Report;

use record::Record;
use selection::Limits;
use subjects::{Failure, Subject};

/// Exit code after Ctrl-C, as in shells.
pub const INTERRUPTED: u8 = 130;

/// Why a model was not measured to the end.
#[derive(Debug)]
pub enum Halt {
    /// The run was interrupted.
    Stopped,
    /// The model cannot be measured completely.
    Failed(String),
    /// The file cannot be written.
    Lost(anyhow::Error),
}

/// Measures missing cells and prints the report.
pub fn run(config: &Config, arguments: &ProfileArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let stop = interruption::flag()?;
    let answer = profile(config, arguments, environment, &stop)?;
    if let Some(path) = &arguments.report {
        write(path, &page::page(&answer))?;
    }
    if let Some(path) = &arguments.svg {
        write(path, &page::gain(&answer).file())?;
    }
    if arguments.json {
        output::line(&serde_json::to_string(&answer)?);
    } else {
        output::write(answer.text().as_bytes());
    }
    for Failure { model, reason } in &answer.failed {
        output::complain(&format!("error: model `{model}`: {reason}"));
    }
    Ok(if answer.interrupted {
        ExitCode::from(INTERRUPTED)
    } else if answer.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn profile(
    config: &Config,
    arguments: &ProfileArgs,
    environment: &Environment,
    stop: &AtomicBool,
) -> anyhow::Result<Report> {
    let machine = Machine::here()?;
    let cores = grid::cores(&arguments.cores, machine.units()).map_err(anyhow::Error::msg)?;
    let contention = arguments.contention.then(|| fewest(&cores, machine.units())).transpose()?;
    let source = Source::open(&config.repository)?;
    let (mut subjects, mut failed) =
        subjects::gather(&source, config, ("--model", &arguments.models), &arguments.batches)?;
    let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort);
    let loader = Loader::new(ort);
    choose_shapes(arguments, &mut subjects, &mut failed)?;
    let time = arguments.time.0;
    let bench = Bench { source: &source, loader: &loader, machine: &machine, time, stop };
    let mut record = Record::open(&arguments.out)?;
    let names = || subjects.iter().map(|subject| subject.name.as_str());
    if arguments.fresh {
        record.forget(names())?;
    }
    // A profile without measured cells holds nothing that measurements continue.
    if !arguments.predict {
        record.forget_predictions(names())?;
    }
    let others = profiles::named("--from", &arguments.from, Path::new("")).map_err(anyhow::Error::msg)?;
    for subject in &subjects {
        let found = record.header(subject.name.as_str());
        if let Some(found) = found.filter(|header| header.source != Origin::Predicted) {
            let agrees = bench.check(subject, found).map_err(anyhow::Error::msg);
            agrees.with_context(|| format!("`{}`: model `{}`", arguments.out.display(), subject.name))?;
        }
    }
    let mut bar = Bar::new(environment.stderr_is_terminal);
    let mut findings = Findings::default();
    let covered =
        subjects.iter().filter_map(|subject| traffic::coverage(subject.name.as_str(), &subject.shapes));
    findings.notes.extend(covered);
    let mut recorder = Recorder { record: &mut record, bar: &mut bar, findings: &mut findings };
    let known = (cores.as_slice(), others.as_slice());
    let limits = Limits {
        cells: arguments.budget.and_then(|cells| usize::try_from(cells).ok()),
        time: arguments.within.map(|time| time.0),
    };
    let interrupted = if arguments.predict {
        selection::predict(&bench, &subjects, known, &mut recorder, &mut failed).map(|()| false)
    } else if limits.cells.is_some() || limits.time.is_some() {
        selection::measure(&bench, &subjects, known, limits, &mut recorder, &mut failed)
    } else {
        let wanted = Wanted { cores: &cores, contention };
        measure(&bench, &subjects, wanted, &mut recorder, &mut failed)
    };
    let interrupted = interrupted.and_then(|interrupted| {
        selection::add_work(&bench, &subjects, &mut recorder)?;
        Ok(interrupted)
    });
    bar.clear();
    Ok(Report::new(&arguments.out, &machine, &subjects, &record, findings, failed, interrupted?))
}

/// Gives models the shapes that the command names, or that a server has seen. Models without traffic fail.
fn choose_shapes(
    arguments: &ProfileArgs,
    subjects: &mut Vec<Subject>,
    failed: &mut Vec<Failure>,
) -> anyhow::Result<()> {
    if let Some(url) = &arguments.from_traffic {
        subjects.retain_mut(|subject| {
            match traffic::shapes(url, &arguments.credentials, &subject.name, subject.version) {
                Ok(shapes) => {
                    subject.shapes = shapes;
                    true
                }
                Err(error) => {
                    failed.push(Failure { model: subject.name.to_string(), reason: format!("{error:#}") });
                    false
                }
            }
        });
    }
    if arguments.shapes.is_empty() {
        return Ok(());
    }
    let models = subjects.len().saturating_add(failed.len());
    anyhow::ensure!(models == 1, "--shape: expected one --model, got {models}");
    for subject in subjects {
        subject.shapes = subjects::shapes_of_rows(&arguments.shapes, subject).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

/// The smallest of these numbers of cores, which must leave a core for the synthetic load.
fn fewest(cores: &[u32], there: u32) -> anyhow::Result<u32> {
    let fewest = cores.first().copied().unwrap_or(there);
    anyhow::ensure!(
        fewest < there,
        "--contention: expected a free core, got batches on {} and {there} cores that this process may use: give it more \
         cores, or name fewer with --cores",
        bench::cores_words(fewest)
    );
    Ok(fewest)
}

/// What to measure.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    /// Numbers of cores, ascending.
    cores: &'a [u32],
    /// Number of cores on which batches are also measured under contention.
    contention: Option<u32>,
}

/// Measures missing cells. Returns true if it was interrupted.
fn measure(
    bench: &Bench<'_>,
    subjects: &[Subject],
    wanted: Wanted<'_>,
    recorder: &mut Recorder<'_>,
    failed: &mut Vec<Failure>,
) -> anyhow::Result<bool> {
    let passes: Vec<_> =
        subjects.iter().map(|subject| (subject, missing(subject, wanted, recorder.record))).collect();
    let cells = |passes: &[Pass]| passes.iter().map(|pass| pass.batches.len()).sum::<usize>();
    recorder.bar.expect(passes.iter().map(|(_, passes)| cells(passes)).sum());
    for (subject, passes) in passes {
        for Pass { units, batches, under_contention } in &passes {
            let measured = match under_contention {
                false => bench.measure(subject, *units, batches, recorder),
                true => bench.measure_contention(subject, *units, batches, recorder),
            };
            match measured {
                Ok(()) => {}
                Err(Halt::Stopped) => return Ok(true),
                Err(Halt::Lost(error)) => return Err(error),
                Err(Halt::Failed(reason)) => {
                    failed.push(Failure { model: subject.name.to_string(), reason });
                    recorder.bar.skip(cells(&missing(subject, wanted, recorder.record)));
                    break;
                }
            }
        }
    }
    Ok(false)
}

/// Batches to measure on one number of cores.
struct Pass {
    units: u32,
    batches: Vec<u32>,
    /// Under contention, or solo.
    under_contention: bool,
}

fn missing(subject: &Subject, wanted: Wanted<'_>, record: &Record) -> Vec<Pass> {
    let batches = || subject.batches.iter().copied();
    let there = record.cells(subject.name.as_str());
    let solo = wanted.cores.iter().map(|&units| {
        let missing = batches().filter(|&batch| !there.contains(&(batch, units)));
        Pass { units, batches: missing.collect(), under_contention: false }
    });
    let measured = record.contention(subject.name.as_str());
    let contention = wanted.contention.map(|units| {
        let known = |batch| contention::AGGRESSORS.iter().all(|one| measured.contains(&(batch, units, *one)));
        Pass { units, batches: batches().filter(|&batch| !known(batch)).collect(), under_contention: true }
    });
    let passes = solo.chain(contention);
    passes.filter(|pass| !pass.batches.is_empty()).collect()
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests;
