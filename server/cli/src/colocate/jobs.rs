//! `tessera colocate jobs`: training jobs that share the memory of one GPU.

use colocation::salus::{self, Completion, Order};
use node::files::read_text;
use node::output;
use serde::Serialize;

use super::arguments::JobsArgs;
use super::{each, mean, words};

/// Largest list of jobs.
const BYTES: u64 = 16 << 20;

#[derive(Serialize)]
struct Run<'a> {
    policy: &'a str,
    seed: u64,
    #[serde(flatten)]
    completion: Completion,
}

const HEADER: [&str; 7] =
    ["policy", "mean min", "fifo/mean", "p50 min", "p99 min", "makespan min", "most memory MB"];

/// Runs every order with every seed.
pub fn report(arguments: &JobsArgs) -> anyhow::Result<String> {
    let shown = arguments.data.display();
    let list = salus::jobs(&read_text(&arguments.data, BYTES)?)
        .map_err(|problem| anyhow::anyhow!("`{shown}`: {problem}"))?;
    let count = arguments.jobs.map_or(list.len(), usize::from);
    let spread_seconds = arguments.arrive.nanos() as f64 / 1e9;
    let run = |policy, seed| {
        let jobs = salus::draw(&list, count, arguments.cv, spread_seconds, seed);
        let order = Order::find(policy).map_err(anyhow::Error::msg)?;
        let completion = salus::run(&jobs, order, arguments.memory).map_err(anyhow::Error::msg)?;
        anyhow::Ok(Run { policy, seed, completion })
    };
    let mut runs = Vec::new();
    for policy in words(&arguments.policy, Order::ALL.iter().map(|(word, ..)| *word)) {
        for seed in arguments.runs.seeds() {
            runs.push(run(policy, seed)?);
        }
    }
    if arguments.runs.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&runs)?));
    }
    let fifo: Vec<Run<'_>> =
        arguments.runs.seeds().map(|seed| run("fifo", seed)).collect::<Result<_, _>>()?;
    let rows = runs.chunk_by(|one, other| one.policy == other.policy).map(|runs| row(runs, &fifo));
    Ok(format!(
        "{count} jobs; from arrival to end; means and ratios for each seed, otherwise means over seeds\n\n{}",
        output::table(&HEADER, rows)
    ))
}

fn row(runs: &[Run<'_>], fifo: &[Run<'_>]) -> Vec<String> {
    let of = |figure: fn(&Completion) -> f64| mean(runs.iter().map(move |run| figure(&run.completion)));
    let ratio = runs.iter().zip(fifo).map(|(run, fifo)| fifo.completion.mean_min / run.completion.mean_min);
    vec![
        runs.first().map_or(String::new(), |run| run.policy.to_owned()),
        each(runs.iter().map(|run| run.completion.mean_min), 1),
        each(ratio, 2),
        format!("{:.1}", of(|completion| completion.p50_min)),
        format!("{:.1}", of(|completion| completion.p99_min)),
        format!("{:.1}", of(|completion| completion.makespan_min)),
        format!("{:.0}", of(|completion| completion.memory_mb_max)),
    ]
}
