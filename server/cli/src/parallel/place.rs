//! `tessera parallel place`: many models on equal devices.

use anyhow::Context as _;
use model_parallel::placement::policy::{self, POLICIES};
use model_parallel::placement::{Cluster, Overheads, Placement, Problem, ServedModel};
use model_parallel::profile::ModelProfile;
use model_parallel::simulation::{Report, Request, Window, events, stage_clocks};
use model_parallel::traffic::{self, Shares};
use model_parallel::verdict::{self, Better, Verdict};
use node::files::read_text;
use node::output;
use serde::Serialize;

use super::arguments::PlaceArgs;
use super::{ms, words};

/// Largest table.
const BYTES: u64 = 256 << 20;

#[derive(Serialize)]
struct Run<'a> {
    policy: &'a str,
    seed: u64,
    /// Shapes of the groups.
    groups: String,
    placement: &'a Placement,
    /// Attainment on the requests with which the placement was searched.
    planned_attainment: f64,
    /// The fast simulator.
    stage_clocks: Report,
    /// The detailed simulator.
    events: Report,
}

#[derive(Serialize)]
struct Document<'a> {
    runs: &'a [Run<'a>],
    /// Replication compared with splitting. None if it was not asked for.
    verdict: Option<&'a Verdict>,
}

const HEADER: [&str; 9] =
    ["policy", "groups", "copies", "seed", "planned", "attainment", "detailed", "mean ms", "p99 ms"];

/// Places the models with every policy, and simulates every seed.
pub fn report(arguments: &PlaceArgs) -> anyhow::Result<String> {
    let problem = problem(arguments)?;
    let names = POLICIES.iter().map(|(word, ..)| *word);
    let mut placed = Vec::new();
    for policy in words(&arguments.policy, names) {
        placed.push((policy, policy::find(policy)?(&problem)?));
    }
    let window = window(arguments);
    let mut runs = Vec::new();
    let mut first = None;
    for seed in seeds(arguments) {
        let requests = requests(arguments, &problem, seed)?;
        for (policy, score) in &placed {
            let (fast, detailed) = simulate(&problem, &score.placement, &requests, seed, window)?;
            runs.push(Run {
                policy,
                seed,
                groups: score.placement.to_string(),
                placement: &score.placement,
                planned_attainment: score.attainment,
                stage_clocks: fast,
                events: detailed,
            });
        }
        first.get_or_insert(requests);
    }
    let compared = placed.iter().any(|(word, _)| *word == "replication") && placed.len() > 1;
    let verdict = match first.filter(|_| compared && problem.cluster.devices > 1) {
        Some(requests) => Some(verdict::compare(&problem, &requests, window)?),
        None => None,
    };
    if arguments.runs.json {
        let document = Document { runs: &runs, verdict: verdict.as_ref() };
        return Ok(format!("{}\n", serde_json::to_string_pretty(&document)?));
    }
    let table = output::table(&HEADER, runs.iter().map(row));
    let verdict = verdict.as_ref().map(|verdict| format!("\n{}", explain(verdict))).unwrap_or_default();
    Ok(format!(
        "{} models on {} devices, {} requests/s, CV {}, objective {} times the time on one device\n\n{table}{verdict}\n{}",
        arguments.models,
        arguments.devices,
        arguments.rate,
        arguments.cv,
        arguments.slo_scale,
        "planned: requests of the search; attainment: stage clocks; detailed: events with dispatch (docs/parallel.md)\n"
    ))
}

fn row(run: &Run<'_>) -> Vec<String> {
    vec![
        run.policy.to_owned(),
        run.groups.clone(),
        run.placement.total_replicas().to_string(),
        run.seed.to_string(),
        format!("{:.3}", run.planned_attainment),
        format!("{:.3}", run.stage_clocks.attainment),
        format!("{:.3}", run.events.attainment),
        ms(run.stage_clocks.mean_s),
        ms(run.stage_clocks.p99_s),
    ]
}

/// The verdict in sentences.
fn explain(verdict: &Verdict) -> String {
    let points = 100.0 * (verdict.split.attainment - verdict.replicated.attainment);
    let (replicated, split) = (ms(verdict.replicated.mean_s), ms(verdict.split.mean_s));
    let outcome = match verdict.outcome {
        Better::Split => format!("splitting gains {points:.1} percentage points of attainment"),
        Better::Replicated => format!("splitting loses {:.1} percentage points of attainment", -points),
        Better::Equal => "splitting changes attainment by less than half a percentage point".to_owned(),
    };
    let shape = &verdict.split_placement;
    let mut text =
        format!("verdict: {outcome} ({shape}); mean latency {replicated} ms replicated, {split} ms split\n");
    for reason in &verdict.reasons {
        text.push_str(&format!("  {reason}\n"));
    }
    text
}

/// Seeds of the runs; one if the requests are given.
fn seeds(arguments: &PlaceArgs) -> Vec<u64> {
    let count = if arguments.requests.is_some() { 1 } else { usize::MAX };
    arguments.runs.seeds().take(count).collect()
}

fn window(arguments: &PlaceArgs) -> Window {
    let long = arguments.duration.nanos() > 40_000_000_000;
    if long { Window::PUBLISHED } else { Window::ALL }
}

fn simulate(
    problem: &Problem,
    placement: &Placement,
    requests: &[Request],
    seed: u64,
    window: Window,
) -> anyhow::Result<(Report, Report)> {
    let objectives = problem.objectives_s();
    let fast = stage_clocks(&problem.system(placement)?, requests, problem.overheads.fixed_s);
    // The detailed simulator has times for dispatch and runtime of its own.
    let measured = Problem { overheads: Overheads::NONE, ..problem.clone() };
    let detailed = events(&measured.system(placement)?, requests, seed);
    Ok((fast.report(requests, &objectives, window), detailed.report(requests, &objectives, window)))
}

fn problem(arguments: &PlaceArgs) -> anyhow::Result<Problem> {
    let (profiles, weights) = (arguments.profile.len(), arguments.weights.len());
    anyhow::ensure!(
        profiles == weights,
        "`--weights`: expected one for each of {profiles} profiles, got {weights}"
    );
    let mut read = Vec::new();
    for (path, weights) in arguments.profile.iter().zip(&arguments.weights) {
        let name = path.display().to_string();
        let profile =
            ModelProfile::parse(&name, &read_text(path, BYTES)?, weights.0).with_context(|| name.clone())?;
        let profile = profile.scaled(arguments.latency_scale)?;
        read.push(if arguments.layouts == "pure" { profile.without_mixed() } else { profile });
    }
    let models = usize::from(arguments.models);
    let rates = traffic::rates(arguments.rate, models, Shares::PowerLaw { exponent: arguments.exponent })?;
    let served = rates.iter().enumerate().map(|(number, rate)| {
        let profile = number % read.len().max(1);
        let single_s = read.get(profile).map_or(1.0, ModelProfile::single_s);
        ServedModel { profile, rate: *rate, objective_s: arguments.slo_scale * single_s }
    });
    let models = served.collect();
    let duration_s = (30_000.0 / arguments.rate).max(100.0);
    let requests = traffic::requests(&rates, arguments.cv, duration_s, arguments.plan_seed)?;
    let devices = usize::from(arguments.devices);
    let cluster = Cluster { devices, memory_bytes: arguments.memory.0, devices_per_machine: 8 };
    Ok(Problem { profiles: read, models, cluster, overheads: Overheads::PUBLISHED, requests })
}

/// The requests of a seed, or those of the file.
fn requests(arguments: &PlaceArgs, problem: &Problem, seed: u64) -> anyhow::Result<Vec<Request>> {
    let Some(path) = &arguments.requests else {
        let rates: Vec<f64> = problem.models.iter().map(|model| model.rate).collect();
        let duration_s = arguments.duration.nanos() as f64 / 1e9;
        return Ok(traffic::requests(&rates, arguments.cv, duration_s, seed)?);
    };
    let text = read_text(path, BYTES)?;
    let requests = traffic::parse_requests(&text, problem.models.len());
    requests.with_context(|| path.display().to_string())
}
