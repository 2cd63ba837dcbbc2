//! `tessera simulate`: runs a workload through the decision code in virtual time, for one policy or all.

pub mod arena;
pub mod arguments;
pub mod candidate;
mod devices;
mod fleet;
pub mod reading;
pub mod report;
pub mod runs;
pub mod study;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use gpulet_core::placement::Policy;
use gpulet_core::scaling::SCALERS;
use node::environment::Environment;
use node::output;
use sim::page::{Contender, Page};
use units::shell_word;

use arguments::SimulateArgs;
use candidate::Candidate;
use runs::Bar;
use study::{Query, Study};

/// The default policy, the same as the server's.
pub const DEFAULT_POLICY: &str = "deadline";

/// Simulates and prints the report.
pub fn run(arguments: &SimulateArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let file = reading::read_or_draw(&arguments.workload)?;
    let workload = reading::adapt(file.workload.clone(), arguments.rate_scale, arguments.lanes)?;
    if workload.fleet.is_some() {
        return fleet::run(arguments, &file, &workload);
    }
    let study = study_of(arguments, &workload, environment.stderr_is_terminal)?;
    if let Some(path) = &arguments.report {
        write_report(&study, &command(arguments), path)?;
    }
    if arguments.json {
        output::line(&report::json(&study)?);
    } else {
        output::write(report::text(&study).as_bytes());
        if let Some(path) = &arguments.report {
            output::line(&format!("page: {}", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
fn study(arguments: &SimulateArgs, show_bar: bool) -> anyhow::Result<Study> {
    let file = reading::read_or_draw(&arguments.workload)?;
    let workload = reading::adapt(file.workload, arguments.rate_scale, arguments.lanes)?;
    study_of(arguments, &workload, show_bar)
}

fn study_of(
    arguments: &SimulateArgs,
    workload: &workload::Workload,
    show_bar: bool,
) -> anyhow::Result<Study> {
    check_words("--placement", &arguments.placement, Policy::NAMES, workload)?;
    let scalers: Vec<&str> = SCALERS.iter().map(|(word, _)| *word).collect();
    check_words("--scaling", &arguments.scaling, &scalers, workload)?;
    let policies: Vec<&str> = variant_plan::live_policies().collect();
    check_words("--variants", &arguments.variants, &policies, workload)?;
    let mut candidates =
        candidates(arguments, workload).map_err(|problem| anyhow::anyhow!("--policy: {problem}"))?;
    for candidate in &mut candidates {
        candidate.setup.max_events = arguments.max_events;
        if arguments.check {
            candidate.setup = candidate.setup.clone().checked();
        }
    }
    let query = Query {
        workload,
        candidates: &candidates,
        seeds: arguments.seeds,
        scales: if arguments.report.is_some() { &study::SCALES } else { &[] },
        capacity_seeds: if arguments.find_capacity { usize::MAX } else { 0 },
        threads: arguments::threads(arguments.threads),
    };
    let bar = Bar::new(show_bar);
    bar.say(format!("simulating {}", workload.name));
    bar.expect(study::runs(&query));
    let found = study::run(&query, &bar);
    bar.clear();
    Ok(found?)
}

/// Rejects unknown names, and all names if the workload has no devices.
fn check_words(
    flag: &str,
    words: &[String],
    known: &[&str],
    workload: &workload::Workload,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        words.is_empty() || workload.partition.is_some(),
        "{flag}: expected a workload with [devices] and [partition]"
    );
    match words.iter().find(|word| !known.contains(&word.as_str())) {
        Some(word) => anyhow::bail!("{flag}: expected one of {}, got `{word}`", known.join(", ")),
        None => Ok(()),
    }
}

/// Combines every policy with every named placement policy and scaler.
fn candidates(arguments: &SimulateArgs, workload: &workload::Workload) -> Result<Vec<Candidate>, String> {
    let batching = batching(arguments, workload)?;
    let words = |words: &[String]| match words {
        [] => vec![None],
        words => words.iter().cloned().map(Some).collect(),
    };
    let (placements, scalers) = (words(&arguments.placement), words(&arguments.scaling));
    let variants = words(&arguments.variants);
    if [&placements, &scalers, &variants].into_iter().all(|words| *words == [None]) {
        return Ok(batching);
    }
    let named = batching.len() > 1;
    let mut candidates = Vec::new();
    for candidate in &batching {
        let pairs =
            placements.iter().flat_map(|placement| scalers.iter().map(move |scaling| (placement, scaling)));
        for ((placement, scaling), variants) in
            pairs.flat_map(|pair| variants.iter().map(move |variants| (pair, variants)))
        {
            let batching = Some(candidate.setup.label.clone()).filter(|_| named);
            let words = [batching, placement.clone(), scaling.clone(), variants.clone()];
            let words: Vec<String> = words.into_iter().flatten().collect();
            let setup = sim::Setup {
                placement: placement.clone(),
                scaling: scaling.clone(),
                variants: variants.clone(),
                ..candidate.setup.clone().labelled(words.join(", "))
            };
            candidates.push(Candidate { setup, colour: candidates.len() });
        }
    }
    Ok(candidates)
}

fn batching(arguments: &SimulateArgs, workload: &workload::Workload) -> Result<Vec<Candidate>, String> {
    if arguments.compare {
        return candidate::field(workload);
    }
    if arguments.policy.is_empty() {
        return candidate::parse(DEFAULT_POLICY, 0).map(|only| vec![only]);
    }
    arguments.policy.iter().enumerate().map(|(place, text)| candidate::parse(text, place)).collect()
}

/// The command that gives the same result, without options that do not change it.
fn command(arguments: &SimulateArgs) -> String {
    let set = |flag: bool| if flag { vec![String::new()] } else { Vec::new() };
    let other = |number: u64, default: u64| if number == default { None } else { Some(number.to_string()) };
    let options = [
        ("--policy", arguments.policy.clone()),
        ("--compare", set(arguments.compare)),
        ("--placement", arguments.placement.clone()),
        ("--scaling", arguments.scaling.clone()),
        ("--variants", arguments.variants.clone()),
        ("--seeds", other(arguments.seeds, 1).into_iter().collect()),
        ("--rate-scale", arguments.rate_scale.iter().map(f64::to_string).collect()),
        ("--lanes", arguments.lanes.iter().map(u32::to_string).collect()),
        ("--find-capacity", set(arguments.find_capacity)),
        ("--max-events", other(arguments.max_events, arguments::EVENTS_MAX).into_iter().collect()),
        ("--report", vec!["report.html".to_owned()]),
    ];
    let mut text = format!("tessera simulate {}", shell_word(&arguments.workload.display().to_string()));
    for (option, values) in options {
        for value in values {
            let value = if value.is_empty() { value } else { format!(" {}", shell_word(&value)) };
            let _ = write!(text, " {option}{value}");
        }
    }
    text
}

fn write_report(study: &Study, command: &str, path: &Path) -> anyhow::Result<()> {
    let contenders = study.standings.iter().filter_map(|standing| {
        Some(Contender {
            name: standing.label.clone(),
            colour: standing.colour,
            report: standing.first()?,
            offered: standing.offered,
            goodput: standing.goodput,
            attainment: standing.attainment,
            sweep: standing.sweep.clone(),
            capacity: standing.capacity.as_ref().map(|capacity| capacity.rate),
        })
    });
    let page = Page {
        workload: &study.workload,
        command,
        version: env!("CARGO_PKG_VERSION"),
        bound: Some((study.bound.goodput, report::bound_words(&study.bound).to_owned())),
        contenders: contenders.collect(),
        notes: study.notes.clone(),
    };
    std::fs::write(path, page.html()).with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests;
