//! `tessera profile`: how long batches of each model take on this machine's cores, measured, into a file that
//! `tessera plan` plans with.
//!
//! A model runs as a lane of `tessera serve` would run it: same engine, same options, same pinning. What is in the file
//! already is not measured again, so a run that was stopped goes on where it was.

mod answer;
pub mod arguments;
mod bar;
mod bench;
mod beside;
mod grid;
mod machine;
mod neighbours;
mod page;
mod record;
mod repeat;
mod resident;
mod runs;
mod subjects;
mod waiting;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use models::Loader;
use models::repository::Repository;
use node::catalog::Source;
use node::config::Config;
use node::output;
use node::surroundings::Surroundings;

use crate::load::interruption;
use answer::Answer;
use arguments::ProfileArgs;
use bar::Bar;
use bench::{Bench, Desk, Findings, Halt};
use machine::Machine;

pub use machine::DEVICE;
use record::Record;
use subjects::{Failure, Subject};

/// Exit code of a run that was stopped from outside, as shells have it.
const INTERRUPTED: u8 = 130;

/// Measures what is missing, and answers with all that is asked for.
pub fn run(
    config: &Config,
    arguments: &ProfileArgs,
    surroundings: &Surroundings,
) -> anyhow::Result<ExitCode> {
    let stop = interruption::flag()?;
    let answer = profile(config, arguments, surroundings, &stop)?;
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
    surroundings: &Surroundings,
    stop: &AtomicBool,
) -> anyhow::Result<Answer> {
    let machine = Machine::here()?;
    let cores = grid::cores(&arguments.cores, machine.units()).map_err(anyhow::Error::msg)?;
    let beside = arguments.neighbours.then(|| fewest(&cores, machine.units())).transpose()?;
    let source = match &config.repository.path {
        Some(path) => Source::Folder(Repository::open(path)?),
        None => Source::Embedded,
    };
    let (subjects, mut failed) = subjects::gather(&source, config, &arguments.models, &arguments.batches)?;
    let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &surroundings.ort);
    let loader = Loader::new(ort);
    let bench = Bench { source: &source, loader: &loader, machine: &machine, time: arguments.time.0, stop };
    let mut record = Record::open(&arguments.out)?;
    if arguments.fresh {
        record.forget(subjects.iter().map(|subject| subject.name.as_str()))?;
    }
    for subject in &subjects {
        if let Some(found) = record.header(subject.name.as_str()) {
            let agrees = bench.check(subject, found).map_err(anyhow::Error::msg);
            agrees.with_context(|| format!("`{}`: model `{}`", arguments.out.display(), subject.name))?;
        }
    }
    let mut bar = Bar::new(surroundings.stderr_is_terminal);
    let mut findings = Findings::default();
    let mut desk = Desk { record: &mut record, bar: &mut bar, findings: &mut findings };
    let wanted = Wanted { cores: &cores, beside };
    let interrupted = measure(&bench, &subjects, wanted, &mut desk, &mut failed);
    bar.clear();
    Ok(Answer::new(&arguments.out, &machine, &subjects, &record, findings, failed, interrupted?))
}

/// The fewest of these numbers of cores, which must leave some for neighbours.
fn fewest(cores: &[u32], there: u32) -> anyhow::Result<u32> {
    let fewest = cores.first().copied().unwrap_or(there);
    anyhow::ensure!(
        fewest < there,
        "--neighbours: batches on {} leave none of the {there} that this process may use: expected one core more at \
         least, or --cores with fewer",
        bench::cores_words(fewest)
    );
    Ok(fewest)
}

/// What is to be in the file.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    /// Numbers of cores, ascending.
    cores: &'a [u32],
    /// The number of cores on which batches are measured beside neighbours too.
    beside: Option<u32>,
}

/// Measures all that is missing; whether somebody stopped it.
fn measure(
    bench: &Bench<'_>,
    subjects: &[Subject],
    wanted: Wanted<'_>,
    desk: &mut Desk<'_>,
    failed: &mut Vec<Failure>,
) -> anyhow::Result<bool> {
    let passes: Vec<_> =
        subjects.iter().map(|subject| (subject, missing(subject, wanted, desk.record))).collect();
    let cells = |passes: &[Pass]| passes.iter().map(|pass| pass.batches.len()).sum::<usize>();
    desk.bar.expect(passes.iter().map(|(_, passes)| cells(passes)).sum());
    for (subject, passes) in passes {
        for Pass { units, batches, is_beside } in &passes {
            let measured = match is_beside {
                false => bench.measure(subject, *units, batches, desk),
                true => bench.measure_beside(subject, *units, batches, desk),
            };
            match measured {
                Ok(()) => {}
                Err(Halt::Stopped) => return Ok(true),
                Err(Halt::Lost(error)) => return Err(error),
                Err(Halt::Failed(reason)) => {
                    failed.push(Failure { model: subject.name.to_string(), reason });
                    desk.bar.skip(cells(&missing(subject, wanted, desk.record)));
                    break;
                }
            }
        }
    }
    Ok(false)
}

/// Batches to be measured on one number of cores.
struct Pass {
    units: u32,
    batches: Vec<u32>,
    /// Beside neighbours, or alone.
    is_beside: bool,
}

fn missing(subject: &Subject, wanted: Wanted<'_>, record: &Record) -> Vec<Pass> {
    let batches = || subject.batches.iter().copied();
    let there = record.cells(subject.name.as_str());
    let alone = wanted.cores.iter().map(|&units| {
        let missing = batches().filter(|&batch| !there.contains(&(batch, units)));
        Pass { units, batches: missing.collect(), is_beside: false }
    });
    let neighbours = record.neighbours(subject.name.as_str());
    let beside = wanted.beside.map(|units| {
        let known = |batch| beside::NEIGHBOURS.iter().all(|one| neighbours.contains(&(batch, units, *one)));
        Pass { units, batches: batches().filter(|&batch| !known(batch)).collect(), is_beside: true }
    });
    let passes = alone.chain(beside);
    passes.filter(|pass| !pass.batches.is_empty()).collect()
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests;
