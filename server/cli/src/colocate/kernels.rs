//! `tessera colocate kernels`: an online model and models of best effort on one GPU.

use colocation::arrivals::Arrivals;
use colocation::figures::Figures;
use colocation::policy::POLICIES;
use colocation::simulation::{Job, Scenario, V100_SMS, simulate};
use node::output;
use serde::Serialize;

use super::arguments::KernelsArgs;
use super::{each, lists, mean, words};

#[derive(Serialize)]
struct Run<'a> {
    policy: &'a str,
    seed: u64,
    #[serde(flatten)]
    figures: Figures,
}

const HEADER: [&str; 8] =
    ["policy", "p50 ms", "p95 ms", "p99 ms", "p99/alone", "online/s", "best effort/s", "SMs busy %"];

/// Runs every policy with every seed.
pub fn report(arguments: &KernelsArgs) -> anyhow::Result<String> {
    let mut scenario = scenario(arguments)?;
    let mut runs = Vec::new();
    for policy in words(&arguments.policy, POLICIES.iter().map(|(word, ..)| *word)) {
        for seed in arguments.runs.seeds() {
            scenario.seed = seed;
            let figures = simulate(&scenario, policy).map_err(anyhow::Error::msg)?;
            runs.push(Run { policy, seed, figures });
        }
    }
    if arguments.runs.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&runs)?));
    }
    let alone = p99s(&mut scenario, arguments)?;
    let rows = runs.chunk_by(|one, other| one.policy == other.policy).map(|runs| row(runs, &alone));
    let best_effort: Vec<&str> = scenario.best_effort.iter().map(|job| job.program.name.as_str()).collect();
    Ok(format!(
        "{} online, {} best effort; p99 and best effort for each seed, otherwise means over seeds\n\n{}\n{}",
        scenario.online.program.name,
        best_effort.join(" and "),
        output::table(&HEADER, rows),
        "simulated; interference between kernels is a model (docs/colocation.md)\n"
    ))
}

/// The p99 of the online model alone, by seed.
fn p99s(scenario: &mut Scenario, arguments: &KernelsArgs) -> anyhow::Result<Vec<f64>> {
    let run = |seed| {
        scenario.seed = seed;
        Ok(simulate(scenario, "alone").map_err(anyhow::Error::msg)?.p99_ms)
    };
    arguments.runs.seeds().map(run).collect()
}

fn row(runs: &[Run<'_>], alone: &[f64]) -> Vec<String> {
    let of = |figure: fn(&Figures) -> f64| mean(runs.iter().map(move |run| figure(&run.figures)));
    let late: usize = runs.iter().map(|run| run.figures.unfinished).sum();
    let overload = if late > 0 { format!(" ({late} left)") } else { String::new() };
    let ratio = mean(runs.iter().zip(alone).map(|(run, alone)| run.figures.p99_ms / alone));
    vec![
        runs.first().map_or(String::new(), |run| run.policy.to_owned()),
        format!("{:.2}", of(|figures| figures.p50_ms)),
        format!("{:.2}", of(|figures| figures.p95_ms)),
        each(runs.iter().map(|run| run.figures.p99_ms), 2) + &overload,
        format!("{ratio:.2}"),
        format!("{:.1}", of(|figures| figures.online_per_second)),
        each(runs.iter().map(|run| run.figures.best_effort_per_second.iter().sum()), 2),
        format!("{:.0}", 100.0 * of(|figures| figures.sm_share)),
    ]
}

fn scenario(arguments: &KernelsArgs) -> anyhow::Result<Scenario> {
    let data = &arguments.data;
    let names = lists::names(data)?;
    let arrivals = if arguments.recorded {
        Arrivals::Recorded { gaps: lists::gaps(data)?.into() }
    } else if arguments.back_to_back {
        Arrivals::BackToBack
    } else {
        Arrivals::Poisson { rate: arguments.rps }
    };
    let best_effort = arguments.best_effort.iter().map(|word| {
        let program = lists::find(data, "--best-effort", word, &names)?;
        Ok(Job { program, arrivals: Arrivals::BackToBack })
    });
    let (duration_ns, warm_up_ns) = (arguments.duration.nanos(), arguments.warm_up.nanos());
    anyhow::ensure!(warm_up_ns < duration_ns, "`--warm-up`: expected less than `--duration`");
    Ok(Scenario {
        online: Job { program: lists::find(data, "--online", &arguments.online, &names)?, arrivals },
        best_effort: best_effort.collect::<anyhow::Result<_>>()?,
        duration_ns,
        warm_up_ns,
        seed: arguments.runs.seed,
        sms: V100_SMS,
        interference: arguments.interference,
        launch_ns: arguments.launch.nanos().max(1),
        poll_ns: arguments.poll.nanos().max(1),
    })
}
