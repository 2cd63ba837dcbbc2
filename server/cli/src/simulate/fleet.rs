//! Simulates a workload with a `[fleet]` section: the nodes of the fleet, and one machine with the same lanes for comparison.

use std::process::ExitCode;

use node::output;
use serde::Serialize;
use sim::fleet::{BEHIND_PICKER, Balancing, FleetReport, FleetSimulation};
use sim::{Report, Setup, SimError, Simulation};
use workload::Workload;

use super::arguments::{SimulateArgs, threads};
use super::reading::WorkloadFile;

/// The fleet, with each method of spreading requests, and the same lanes in one machine.
#[derive(Serialize)]
struct Comparison {
    workload: String,
    about: String,
    nodes: u32,
    lanes: u32,
    one_machine: OneMachine,
    fleet: Vec<FleetReport>,
}

#[derive(Clone, Copy, Default, Serialize)]
struct OneMachine {
    offered: u64,
    good: u64,
    goodput: f64,
    attainment: f64,
    worst_model: f64,
    busy: f64,
    batch: f64,
    p99_us: Option<u64>,
}

impl From<&Report> for OneMachine {
    fn from(report: &Report) -> Self {
        let asked = report.models.iter().filter(|model| model.offered > 0);
        Self {
            offered: report.requests.offered,
            good: report.requests.good,
            goodput: report.goodput,
            attainment: report.attainment,
            worst_model: asked.map(|model| model.attainment).fold(1.0, f64::min),
            busy: report.lane_busy,
            batch: report.mean_batch,
            p99_us: report.latency_ms.map(|latency| (1e3 * latency.p99) as u64),
        }
    }
}

/// Runs the workload, and prints the figures.
pub fn run(arguments: &SimulateArgs, file: &WorkloadFile, workload: &Workload) -> anyhow::Result<ExitCode> {
    for (is_given, flag) in [
        (!arguments.placement.is_empty(), "--placement"),
        (!arguments.scaling.is_empty(), "--scaling"),
        (!arguments.variants.is_empty(), "--variants"),
        (arguments.lanes.is_some(), "--lanes"),
        (arguments.find_capacity, "--find-capacity"),
        (arguments.report.is_some(), "--report"),
        (arguments.check, "--check"),
        (arguments.seeds > 1, "--seeds"),
        (!arguments.policy.is_empty(), "--policy"),
    ] {
        anyhow::ensure!(!is_given, "{flag}: not available for a workload with [fleet]: leave it out");
    }
    let methods = if arguments.compare { Balancing::ALL.to_vec() } else { vec![Balancing::Tessera] };
    let comparison = compare(file, workload, &methods, threads(arguments.threads))?;
    if arguments.json {
        output::line(&serde_json::to_string(&comparison)?);
    } else {
        output::write(text(&comparison).as_bytes());
    }
    Ok(ExitCode::SUCCESS)
}

enum Ran {
    One(OneMachine),
    Fleet(FleetReport),
}

fn compare(
    file: &WorkloadFile,
    workload: &Workload,
    methods: &[Balancing],
    threads: usize,
) -> Result<Comparison, SimError> {
    let setup = Setup::default();
    let jobs: Vec<Option<Balancing>> =
        std::iter::once(None).chain(methods.iter().copied().map(Some)).collect();
    let ran = sim::abreast(threads, &jobs, |job| match job {
        None => Ok(Ran::One((&Simulation::new(workload, &setup)?.run(&mut |_| {})?).into())),
        Some(method) => Ok(Ran::Fleet(FleetSimulation::new(workload, &setup, *method)?.run()?)),
    })?;
    let mut comparison = Comparison {
        workload: file.workload.name.clone(),
        about: file.workload.about.clone(),
        nodes: workload.fleet.as_ref().map_or(1, |fleet| fleet.nodes),
        lanes: workload.lanes.count,
        one_machine: OneMachine::default(),
        fleet: Vec::new(),
    };
    for ran in ran {
        match ran {
            Ran::One(one) => comparison.one_machine = one,
            Ran::Fleet(report) => comparison.fleet.push(report),
        }
    }
    Ok(comparison)
}

fn text(comparison: &Comparison) -> String {
    let Comparison { workload, about, nodes, lanes, one_machine, fleet } = comparison;
    let mut text = format!("{workload}: {nodes} nodes with {lanes} lanes");
    if !about.is_empty() {
        text += &format!("\n{about}");
    }
    text += "\n\n";
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let millis = |micros: u64| format!("{:.1}", micros as f64 / 1e3);
    let one = vec![
        "one machine".to_owned(),
        format!("{:.1}", one_machine.goodput),
        "100 %".to_owned(),
        percent(one_machine.attainment),
        percent(one_machine.worst_model),
        one_machine.p99_us.map_or_else(String::new, millis),
        percent(one_machine.busy),
        format!("{:.2}", one_machine.batch),
        String::new(),
        String::new(),
    ];
    let rows = fleet.iter().map(|report| {
        vec![
            report.balancing.clone(),
            format!("{:.1}", report.goodput),
            percent(report.goodput / one_machine.goodput.max(f64::MIN_POSITIVE)),
            percent(report.attainment),
            percent(report.worst_model),
            millis(report.p99_us),
            percent(report.busy),
            format!("{:.2}", report.batch),
            report.retried.to_string(),
            report.lost_inside.to_string(),
        ]
    });
    text += &output::table(
        &[
            "method",
            "good/s",
            "of one machine",
            "attainment",
            "worst model",
            "p99 ms",
            "lanes busy",
            "batch",
            "tried again",
            "lost in nodes",
        ],
        std::iter::once(one).chain(rows),
    );
    if let Some(first) = fleet.first() {
        text += &format!(
            "\nThe plan can serve {:.2} times the rates and wants {} devices. All methods have the same plan. Behind `tessera`, nodes run what they \
             get (policy `{BEHIND_PICKER}`); elsewhere the policy is `{}`.\n",
            first.planned_share,
            first.devices_wanted,
            super::DEFAULT_POLICY
        );
    }
    for report in fleet {
        let refused: Vec<String> =
            report.refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        if !refused.is_empty() {
            text += &format!("{}: refused: {}\n", report.balancing, refused.join(", "));
        }
    }
    text
}
