//! `tessera parallel layout`: a transformer on unequal GPUs.

use model_parallel::device::Link;
use model_parallel::hexgen::{
    Grouping, Machine, PipelinePlan, Pool, StageSize, Task, Traffic, Transformer, best_groups, best_pipeline,
    genetic_groups, symmetric_pipelines,
};
use model_parallel::{Effort, traffic};
use node::output;
use serde::Serialize;

use super::arguments::{LAYOUT_SEARCHES, LayoutArgs};
use super::{ms, words};

#[derive(Serialize)]
struct Run<'a> {
    policy: &'a str,
    /// None: the search has no randomness.
    seed: Option<u64>,
    /// One pipeline, or one for each group. Empty if nothing fits.
    pipelines: Vec<PipelinePlan>,
    /// Share of the requests within the objective. None for searches without requests.
    attainment: Option<f64>,
    /// Why nothing fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

const HEADER: [&str; 7] =
    ["search", "seed", "layers on GPUs", "machines", "bottleneck ms", "latency ms", "attainment"];

/// Runs every search.
pub fn report(arguments: &LayoutArgs) -> anyhow::Result<String> {
    let pool = pool(arguments)?;
    pool.check()?;
    let objective = arguments.objective;
    let mut runs = Vec::new();
    for policy in words(&arguments.policy, LAYOUT_SEARCHES.iter().map(|(word, _)| *word)) {
        match policy {
            "symmetric" => {
                for symmetric in symmetric_pipelines(&pool)? {
                    let problem = symmetric.plan.as_ref().err().map(ToString::to_string);
                    let pipelines = symmetric.plan.into_iter().collect();
                    runs.push(Run { policy, seed: None, pipelines, attainment: None, problem });
                }
            }
            "hexgen" | "best-groups" => {
                for seed in arguments.runs.seeds() {
                    let traffic = requests(arguments, seed)?;
                    let found = match policy {
                        "hexgen" => genetic_groups(&pool, &traffic, objective, Effort::default(), seed),
                        _ => best_groups(&pool, &traffic, objective),
                    };
                    runs.push(grouped(policy, seed, found));
                }
            }
            _ => {
                let size =
                    if policy == "optimum" { StageSize::PartOfMachine } else { StageSize::WholeMachine };
                let found = best_pipeline(&pool, &pool.gpus(), size, objective)?;
                let problem = found.is_none().then(|| "no pipeline fits the memory of the GPUs".to_owned());
                let pipelines = found.into_iter().collect();
                runs.push(Run { policy, seed: None, pipelines, attainment: None, problem });
            }
        }
    }
    if arguments.runs.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&runs)?));
    }
    let machines: Vec<String> =
        pool.machines.iter().map(|machine| format!("{} {}", machine.gpus, machine.name)).collect();
    let table = output::table(&HEADER, runs.iter().flat_map(|run| rows(run, &pool)));
    let note = "a cost model, not measured; tensor parallelism is simulated only (docs/parallel.md)\n";
    Ok(format!("{} layers on {}\n\n{table}\n{note}", pool.model.layers, machines.join(", ")))
}

fn grouped(policy: &str, seed: u64, found: Result<Grouping, model_parallel::ParallelError>) -> Run<'_> {
    let problem = found.as_ref().err().map(ToString::to_string);
    let attainment = found.as_ref().ok().map(|grouping| grouping.attainment);
    let pipelines = found.map(|grouping| grouping.pipelines).unwrap_or_default();
    Run { policy, seed: Some(seed), pipelines, attainment, problem }
}

/// One row for each pipeline of a run, or for the problem.
fn rows(run: &Run<'_>, pool: &Pool) -> Vec<Vec<String>> {
    let seed = run.seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string());
    let start = |text: String| vec![run.policy.to_owned(), seed.clone(), text];
    if let Some(problem) = &run.problem {
        let mut row = start(problem.clone());
        row.resize(HEADER.len(), String::new());
        return vec![row];
    }
    let row = |plan: &PipelinePlan| {
        let mut row = start(plan.shape());
        let names = plan
            .stages
            .iter()
            .map(|stage| pool.machines.get(stage.machine).map_or("", |one| one.name.as_str()));
        row.extend([
            names.collect::<Vec<_>>().join("/"),
            ms(plan.bottleneck_s),
            ms(plan.latency_s),
            run.attainment.map_or_else(|| "-".to_owned(), |share| format!("{share:.3}")),
        ]);
        row
    };
    run.pipelines.iter().map(row).collect()
}

fn pool(arguments: &LayoutArgs) -> anyhow::Result<Pool> {
    let machines = arguments.machine.iter().map(|(name, gpus)| Machine::of_type(name, *gpus));
    Ok(Pool {
        model: Transformer {
            layers: usize::from(arguments.layers),
            layer_bytes: arguments.layer_bytes.0,
            hidden: usize::try_from(arguments.hidden)?,
            cache_bytes: arguments.cache_bytes.0,
        },
        machines: machines.collect::<Result<_, _>>()?,
        network: Link {
            latency_s: arguments.link_latency.nanos() as f64 / 1e9,
            bytes_per_second: arguments.bandwidth.0 as f64,
        },
        task: Task {
            prompt_tokens: arguments.prompt,
            output_tokens: arguments.output,
            concurrent: arguments.concurrent,
        },
    })
}

fn requests(arguments: &LayoutArgs, seed: u64) -> anyhow::Result<Traffic> {
    let duration_s = arguments.duration.nanos() as f64 / 1e9;
    Ok(Traffic {
        requests: traffic::requests(&[arguments.rate], arguments.cv, duration_s, seed)?,
        objective_s: arguments.slo.nanos() as f64 / 1e9,
    })
}
