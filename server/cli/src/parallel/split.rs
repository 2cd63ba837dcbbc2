//! `tessera parallel split`: where to split a chain of layers.

use model_parallel::Effort;
use model_parallel::ap2::genetic_split;
use model_parallel::chain::Chain;
use model_parallel::device::{Device, Link};
use model_parallel::split::{Problem, Split, best_split, even_split};
use node::files::read_text;
use node::output;
use serde::Serialize;

use super::arguments::{SPLIT_SEARCHES, SplitArgs};
use super::{gap, ms, words};

/// Largest table.
const BYTES: u64 = 16 << 20;

#[derive(Serialize)]
struct Run<'a> {
    policy: &'a str,
    /// None: the search has no randomness.
    seed: Option<u64>,
    /// Why the policy found no split that fits. None if it found one.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(flatten)]
    split: Option<Split>,
}

const HEADER: [&str; 8] =
    ["search", "seed", "layers", "devices", "bottleneck ms", "latency ms", "balance", "above optimum %"];

/// Runs every search.
pub fn report(arguments: &SplitArgs) -> anyhow::Result<String> {
    let problem = problem(arguments)?;
    let mut runs = Vec::new();
    for policy in words(&arguments.policy, SPLIT_SEARCHES.iter().map(|(word, _)| *word)) {
        let mut run = |seed, found: Result<Split, model_parallel::ParallelError>| {
            let problem = found.as_ref().err().map(ToString::to_string);
            runs.push(Run { policy, seed, problem, split: found.ok() });
        };
        match policy {
            "ap2" => {
                for seed in arguments.runs.seeds() {
                    run(Some(seed), genetic_split(&problem, Effort::default(), seed));
                }
            }
            "even" => run(None, even_split(&problem)),
            _ => run(None, best_split(&problem)),
        }
    }
    if let [Run { problem: Some(problem), .. }] = runs.as_slice() {
        anyhow::bail!("{problem}");
    }
    if arguments.runs.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&runs)?));
    }
    let best = best_split(&problem).ok().map(|best| best.cost_s(problem.objective()));
    let rows = runs.iter().map(|run| row(run, &problem, best));
    let table = output::table(&HEADER, rows);
    let sent = runs.iter().filter_map(|run| run.split.as_ref()).next().map(sent).unwrap_or_default();
    Ok(format!("{} layers in {} stages\n\n{table}{sent}", problem.chain().len(), problem.stages()))
}

/// Bytes that cross the split points of the first split.
fn sent(split: &Split) -> String {
    let bytes: Vec<String> =
        split.stages.iter().rev().skip(1).rev().map(|stage| stage.sent_bytes.to_string()).collect();
    if bytes.is_empty() {
        String::new()
    } else {
        format!("\nbytes between the stages of the first row: {}\n", bytes.join(" "))
    }
}

fn row(run: &Run<'_>, problem: &Problem, best: Option<f64>) -> Vec<String> {
    let mut row =
        vec![run.policy.to_owned(), run.seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string())];
    let Some(split) = &run.split else {
        row.push(run.problem.clone().unwrap_or_default());
        row.resize(HEADER.len(), String::new());
        return row;
    };
    let join = |of: &dyn Fn(&model_parallel::split::Stage) -> String| {
        split.stages.iter().map(of).collect::<Vec<_>>().join("/")
    };
    row.extend([
        join(&|stage| (stage.to - stage.from).to_string()),
        join(&|stage| stage.device.to_string()),
        ms(split.bottleneck_s),
        ms(split.latency_s),
        format!("{:.2}", split.balance()),
        gap(split.cost_s(problem.objective()), best),
    ]);
    row
}

fn problem(arguments: &SplitArgs) -> anyhow::Result<Problem> {
    let chain = Chain::parse(&read_text(&arguments.layers, BYTES)?)?;
    let device = |(number, (speed, memory)): (usize, &(f64, units::Size))| Device {
        name: format!("device {number}"),
        speed: *speed,
        memory_bytes: memory.0,
    };
    let devices: Vec<Device> = arguments.device.iter().enumerate().map(device).collect();
    let link = Link {
        latency_s: arguments.link_latency.nanos() as f64 / 1e9,
        bytes_per_second: arguments.bandwidth.map_or(f64::INFINITY, |bytes| bytes.0 as f64),
    };
    let stages = arguments.stages.map_or(devices.len(), usize::from);
    Ok(Problem::new(chain, devices, link, stages, arguments.objective)?)
}
