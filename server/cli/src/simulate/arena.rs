//! `tessera arena`: all policies on the standard workloads, as a page in Markdown with plots.

mod burst;
mod league;
mod markdown;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use charts::{Plot, Reference, Series};
use node::environment::Environment;
use node::output;
use workload::Workload;

use super::arguments::{self, ArenaArgs};
use super::runs::Bar;
use super::study::{self, Query, Standing, Study};
use super::{DEFAULT_POLICY, candidate, reading};
use burst::Recovery;

/// Multiples of the rate at which each policy is run for the plots.
const SCALES: [f64; 7] = [0.5, 0.7, 0.85, 0.95, 1.1, 1.4, 2.0];
/// Number of seeds for a capacity search.
const CAPACITY_SEEDS: usize = 2;

/// Results for one workload.
struct Contest {
    study: Study,
    /// Whether its traffic is constant. Only constant traffic has a capacity.
    stationary: bool,
    /// Recovery from a burst for each standing, in the same order; empty without burst test.
    recoveries: Vec<Recoveries>,
}

/// Recovery of a policy from a burst on top of 90 % of a capacity.
struct Recoveries {
    /// At the capacity of the default policy.
    at_ours: Recovery,
    /// At the policy's own capacity.
    at_own: Recovery,
}

/// The page to write unless another is named.
const PAGE: &str = "docs/arena.md";

/// Runs the random workloads, or every workload of the folder; then writes the page and its plots.
pub fn run(arguments: &ArenaArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    match arguments.random {
        Some(count) => league::run(count, arguments, environment),
        None => standard(arguments, environment),
    }
}

fn standard(arguments: &ArenaArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let files = workloads(&arguments.workloads)?;
    let bar = Bar::new(environment.stderr_is_terminal);
    let mut contests = Vec::new();
    for (number, path) in files.iter().enumerate() {
        bar.say(format!("{} of {}: {}", number + 1, files.len(), stem(path)));
        contests.push(contest(path, arguments, &bar)?);
    }
    bar.clear();
    let out = arguments.out.as_deref().unwrap_or(Path::new(PAGE));
    let folder = out.with_extension("");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let write = |path: &Path, text: String| {
        fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
    };
    for contest in &contests {
        write(&folder.join(format!("{}.svg", contest.study.workload.name)), plot(contest).file())?;
    }
    write(out, markdown::page(&contests, arguments.seeds, &stem(&folder)))?;
    output::write(markdown::ranking(&contests).as_bytes());
    output::line(&format!("page: {}", out.display()));
    Ok(ExitCode::SUCCESS)
}

/// The workload files of a folder, by name.
fn workloads(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).with_context(|| format!("--workloads: cannot read `{shown}`"))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("--workloads: cannot read `{shown}`"))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort_unstable();
    anyhow::ensure!(
        !files.is_empty(),
        "--workloads: `{shown}` has no workload: expected files that end in .toml"
    );
    Ok(files)
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn contest(path: &Path, arguments: &ArenaArgs, bar: &Bar) -> anyhow::Result<Contest> {
    let file = reading::read(path)?;
    // The name is that of the plot's file, so it must be one.
    let name = stem(path);
    anyhow::ensure!(
        file.workload.name == name,
        "{}: name: expected `{name}` like the file, got `{}`",
        path.display(),
        file.workload.name
    );
    let candidates = candidate::field(&file.workload).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let stationary = is_stationary(&file.workload);
    let threads = arguments::threads(arguments.threads);
    let query = Query {
        workload: &file.workload,
        candidates: &candidates,
        seeds: arguments.seeds,
        scales: &SCALES,
        capacity_seeds: if stationary { CAPACITY_SEEDS } else { 0 },
        threads,
    };
    bar.expect(study::runs(&query));
    let study = study::run(&query, bar)?;
    let recoveries = match burst::workload(&file, path)? {
        Some(burst) if stationary => recoveries(&study, &candidates, &burst, threads, bar)?,
        _ => Vec::new(),
    };
    Ok(Contest { study, stationary, recoveries })
}

/// Returns true if neither rates nor lanes change over time.
fn is_stationary(workload: &Workload) -> bool {
    let steady = |process: &str| ["poisson", "uniform", "gamma"].contains(&process);
    workload.lanes.changes.is_empty() && workload.models.iter().all(|model| steady(model.process()))
}

/// Runs the burst for each standing at both rates.
fn recoveries(
    study: &Study,
    candidates: &[candidate::Candidate],
    burst: &Workload,
    threads: usize,
    bar: &Bar,
) -> anyhow::Result<Vec<Recoveries>> {
    let rate = |standing: &Standing| standing.capacity.as_ref().map_or(0.0, |capacity| capacity.rate);
    let ours = study.standings.iter().find(|standing| standing.label == DEFAULT_POLICY).map_or(0.0, rate);
    let mut jobs = Vec::new();
    for standing in &study.standings {
        let setup =
            candidates.iter().map(|candidate| &candidate.setup).find(|setup| setup.label == standing.label);
        let setup = setup.with_context(|| format!("policy `{}` has no setup", standing.label))?;
        jobs.extend([ours, rate(standing)].map(|rate| (setup, rate)));
    }
    bar.expect(jobs.len());
    let found = sim::abreast(threads, &jobs, |(setup, rate)| burst::recovery(burst, setup, *rate, bar))?;
    let mut found = found.into_iter();
    let pairs = std::iter::from_fn(|| Some(Recoveries { at_ours: found.next()?, at_own: found.next()? }));
    Ok(pairs.collect())
}

/// Plots attainment against offered rate, for the best setting of each policy.
fn plot(contest: &Contest) -> Plot {
    let study = &contest.study;
    let mut shown: Vec<&Standing> = Vec::new();
    for standing in &study.standings {
        if shown.iter().all(|better| base(&better.label) != base(&standing.label)) {
            shown.push(standing);
        }
    }
    let series = shown.iter().map(|standing| Series {
        name: standing.label.clone(),
        colour: Some(standing.colour),
        strong: standing.label == DEFAULT_POLICY,
        points: standing.sweep.iter().map(|(rate, attainment)| (*rate, attainment * 100.0)).collect(),
    });
    let offered = study.standings.first().and_then(Standing::first).map_or(0.0, |run| run.offered_rate);
    Plot {
        title: format!("{}: attainment against offered rate", study.workload.name),
        horizontal: "requests offered a second, all models together".to_owned(),
        vertical: "attainment, %".to_owned(),
        series: series.collect(),
        upright: vec![Reference::new("the workload", offered)],
        level: vec![Reference::new("99 %", 99.0)],
        up: Some((0.0, 100.0)),
        ..Plot::default()
    }
}

/// The policy's name without its options.
fn base(label: &str) -> &str {
    label.split(':').next().unwrap_or(label)
}

#[cfg(test)]
mod tests;
