//! `tessera colocate cluster`: offline jobs on GPUs that serve online models.

use colocation::kernel::Program;
use colocation::muxflow::{Cluster, PLACEMENTS, Pair, Placed, draw};
use node::output;
use serde::Serialize;

use super::arguments::ClusterArgs;
use super::{each, lists, mean, words};

/// What the names of lists of one request contain.
const INFERENCE: &str = "_fwd";

#[derive(Serialize)]
struct Run {
    seed: u64,
    #[serde(flatten)]
    placed: Placed,
}

const HEADER: [&str; 8] = [
    "policy",
    "job speed",
    "predicted",
    "busy % before",
    "busy % after",
    "SMs % before",
    "SMs % after",
    "worst p99/alone",
];

/// Places the jobs of every seed in every way.
pub fn report(arguments: &ClusterArgs) -> anyhow::Result<String> {
    let names = lists::names(&arguments.data)?;
    let programs: Vec<Program> =
        names.iter().map(|name| lists::read(&arguments.data, name)).collect::<anyhow::Result<_>>()?;
    let online: Vec<Program> = programs.iter().filter(|one| one.name.contains(INFERENCE)).cloned().collect();
    anyhow::ensure!(!online.is_empty(), "`--data`: expected a list whose name contains `{INFERENCE}`");
    let mut runs = Vec::new();
    for placement in words(&arguments.policy, PLACEMENTS.iter().map(|(word, _)| *word)) {
        for seed in arguments.runs.seeds() {
            let (gpus, jobs) =
                draw(&online, &programs, usize::from(arguments.gpus), usize::from(arguments.jobs), seed);
            let duration_ns = arguments.duration.nanos();
            let cluster = Cluster { gpus, jobs, duration_ns, seed, interference: arguments.interference };
            let placed = cluster.place(placement).map_err(anyhow::Error::msg)?;
            runs.push(Run { seed, placed });
        }
    }
    if arguments.runs.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&runs)?));
    }
    let rows = runs.chunk_by(|one, other| one.placed.placement == other.placed.placement).map(row);
    Ok(format!(
        "{} GPUs, {} offline jobs; speed of jobs relative to GPUs of their own, mean over GPUs; \
         speed and p99 for each seed, otherwise means over seeds\n\n{}\n{}",
        arguments.gpus,
        arguments.jobs,
        output::table(&HEADER, rows),
        "simulated; interference between kernels is a model (docs/colocation.md)\n"
    ))
}

fn row(runs: &[Run]) -> Vec<String> {
    let each_mean = |figure: fn(&Pair) -> f64| runs.iter().map(move |run| run.placed.mean(figure));
    let percent = |figure: fn(&Pair) -> f64| format!("{:.0}", 100.0 * mean(each_mean(figure)));
    vec![
        runs.first().map_or(String::new(), |run| run.placed.placement.clone()),
        each(each_mean(|pair| pair.speed), 3),
        format!("{:.3}", mean(each_mean(|pair| pair.predicted_speed))),
        percent(|pair| pair.before.busy_share),
        percent(|pair| pair.after.busy_share),
        percent(|pair| pair.before.sm_share),
        percent(|pair| pair.after.sm_share),
        each(runs.iter().map(|run| run.placed.p99_ratio_max()), 2),
    ]
}
