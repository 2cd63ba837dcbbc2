//! `tessera simulate`: a workload through the decision code in virtual time, for one policy or for all.

pub mod answer;
pub mod arena;
pub mod arguments;
mod devices;
pub mod entrant;
pub mod reading;
pub mod runs;
pub mod study;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use gpulet_core::placement::Policy;
use gpulet_core::scaling::SCALERS;
use node::output;
use node::surroundings::Surroundings;
use sim::page::{Contender, Page};

use arguments::SimulateArgs;
use entrant::Entrant;
use runs::Bar;
use study::{Question, Study};

/// The policy that is simulated unless another is named: the server's default.
pub const DEFAULT_POLICY: &str = "deadline";

/// Simulates and answers.
pub fn run(arguments: &SimulateArgs, surroundings: &Surroundings) -> anyhow::Result<ExitCode> {
    let study = study(arguments, surroundings.stderr_is_terminal)?;
    if let Some(path) = &arguments.report {
        write_report(&study, &command(arguments), path)?;
    }
    if arguments.json {
        output::line(&answer::json(&study)?);
    } else {
        output::write(answer::text(&study).as_bytes());
        if let Some(path) = &arguments.report {
            output::line(&format!("page: {}", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn study(arguments: &SimulateArgs, show_bar: bool) -> anyhow::Result<Study> {
    let file = reading::read(&arguments.workload)?;
    let workload = reading::adapt(file.workload, arguments.rate_scale, arguments.lanes)?;
    check_words("--placement", &arguments.placement, Policy::NAMES, &workload)?;
    let scalers: Vec<&str> = SCALERS.iter().map(|(word, _)| *word).collect();
    check_words("--scaling", &arguments.scaling, &scalers, &workload)?;
    let mut entrants =
        entrants(arguments, &workload).map_err(|problem| anyhow::anyhow!("--policy: {problem}"))?;
    for entrant in &mut entrants {
        entrant.setup.max_events = arguments.max_events;
        if arguments.check {
            entrant.setup = entrant.setup.clone().checked();
        }
    }
    let question = Question {
        workload: &workload,
        entrants: &entrants,
        seeds: arguments.seeds,
        scales: if arguments.report.is_some() { &study::SCALES } else { &[] },
        capacity_seeds: if arguments.find_capacity { usize::MAX } else { 0 },
        threads: arguments::threads(arguments.threads),
    };
    let bar = Bar::new(show_bar);
    bar.say(format!("simulating {}", workload.name));
    bar.expect(study::runs(&question));
    let found = study::answer(&question, &bar);
    bar.clear();
    Ok(found?)
}

/// Refuses words of plans that are none, or that nobody asks.
fn check_words(
    flag: &str,
    words: &[String],
    known: &[&str],
    workload: &workload::Workload,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        words.is_empty() || workload.partition.is_some(),
        "{flag}: the workload cuts no devices: expected one with [devices] and [partition]"
    );
    match words.iter().find(|word| !known.contains(&word.as_str())) {
        Some(word) => anyhow::bail!("{flag}: expected one of {}, got `{word}`", known.join(", ")),
        None => Ok(()),
    }
}

/// Every policy, each with every placement policy and scaler that was named.
fn entrants(arguments: &SimulateArgs, workload: &workload::Workload) -> Result<Vec<Entrant>, String> {
    let batching = batching(arguments, workload)?;
    let words = |words: &[String]| match words {
        [] => vec![None],
        words => words.iter().cloned().map(Some).collect(),
    };
    let (placements, scalers) = (words(&arguments.placement), words(&arguments.scaling));
    if placements.len().max(scalers.len()) == 1 && placements == scalers {
        return Ok(batching);
    }
    let named = batching.len() > 1;
    let mut entrants = Vec::new();
    for entrant in &batching {
        for (placement, scaling) in
            placements.iter().flat_map(|placement| scalers.iter().map(move |scaling| (placement, scaling)))
        {
            let batching = Some(entrant.setup.label.clone()).filter(|_| named);
            let words: Vec<String> =
                [batching, placement.clone(), scaling.clone()].into_iter().flatten().collect();
            let setup = sim::Setup {
                placement: placement.clone(),
                scaling: scaling.clone(),
                ..entrant.setup.clone().labelled(words.join(", "))
            };
            entrants.push(Entrant { setup, colour: entrants.len() });
        }
    }
    Ok(entrants)
}

fn batching(arguments: &SimulateArgs, workload: &workload::Workload) -> Result<Vec<Entrant>, String> {
    if arguments.compare {
        return entrant::field(workload);
    }
    if arguments.policy.is_empty() {
        return entrant::parse(DEFAULT_POLICY, 0).map(|only| vec![only]);
    }
    arguments.policy.iter().enumerate().map(|(place, text)| entrant::parse(text, place)).collect()
}

/// The command that gives the same answer; threads and the place of the page change nothing.
fn command(arguments: &SimulateArgs) -> String {
    let mut text = format!("tessera simulate {}", quoted(&arguments.workload.display().to_string()));
    for policy in &arguments.policy {
        let _ = write!(text, " --policy {}", quoted(policy));
    }
    if arguments.compare {
        text.push_str(" --compare");
    }
    for (flag, words) in [("--placement", &arguments.placement), ("--scaling", &arguments.scaling)] {
        for word in words {
            let _ = write!(text, " {flag} {}", quoted(word));
        }
    }
    if arguments.seeds != 1 {
        let _ = write!(text, " --seeds {}", arguments.seeds);
    }
    if let Some(factor) = arguments.rate_scale {
        let _ = write!(text, " --rate-scale {factor}");
    }
    if let Some(lanes) = arguments.lanes {
        let _ = write!(text, " --lanes {lanes}");
    }
    if arguments.find_capacity {
        text.push_str(" --find-capacity");
    }
    if arguments.max_events != arguments::EVENTS_MAX {
        let _ = write!(text, " --max-events {}", arguments.max_events);
    }
    text.push_str(" --report report.html");
    text
}

/// As a shell takes it for one word.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
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
        bound: Some((study.bound.goodput, answer::bound_words(&study.bound).to_owned())),
        contenders: contenders.collect(),
        notes: study.notes.clone(),
    };
    std::fs::write(path, page.html()).with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests;
