//! Table of simulated and measured figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use charts::{number, percent};
use node::output;
use serde::Serialize;
use workload::Workload;

use super::child::Counted;
use super::families;

/// The goals, as relative differences.
const GOODPUT: f64 = 0.02;
const P50: f64 = 0.05;
const P99: f64 = 0.10;
/// The goal of mean qualities, from 0 to 1: half a point.
const QUALITY: f64 = 0.005;

/// Simulated and measured figures of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Parity {
    workload: String,
    seed: u64,
    protocol: String,
    tensors: String,
    /// Offered requests in the measured window, the same in both.
    offered: Pair<u64>,
    /// Mean milliseconds of a request outside the scheduler and the lanes; the simulator was told the distribution.
    request_overhead_ms: f64,
    /// Mean milliseconds of a lane between two batches, likewise.
    batch_overhead_ms: f64,
    /// Milliseconds of batches by rows, as the simulator was told, of models whose times were measured.
    profiles: BTreeMap<String, BTreeMap<u32, f64>>,
    /// When the client could not keep up; `None` if it did. If set, the figures do not describe the server.
    late_from: Option<String>,
    models: Vec<Rows>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Pair<T> {
    simulated: T,
    measured: T,
}

/// The figures of one model, or of all models together.
#[derive(Clone, Debug, Serialize)]
struct Rows {
    name: String,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    figure: &'static str,
    simulated: f64,
    measured: f64,
    /// Measured divided by simulated, minus 1.
    difference: f64,
    goal: Option<f64>,
    within: bool,
}

impl Row {
    fn new(figure: &'static str, simulated: f64, measured: f64, goal: Option<f64>) -> Self {
        let difference = if simulated == measured { 0.0 } else { measured / simulated - 1.0 };
        Self {
            figure,
            simulated,
            measured,
            difference,
            goal,
            within: goal.is_none_or(|goal| difference.abs() <= goal),
        }
    }
}

impl Parity {
    /// Compares a simulation and a run of the same workload, in which the server counted batches and answers.
    pub fn new(
        workload: &Workload,
        real: bool,
        simulated: &sim::Report,
        (measured, counted): (&loadtest::Report, &Counted),
    ) -> Self {
        let mut all = total(simulated, measured);
        // The load generator reads the batches of models that it sends requests to, which stages need not be.
        if workload.models.iter().all(workload::Model::is_single) {
            all.extend(rows_a_batch(simulated, measured));
        }
        for (name, measured) in families::qualities(workload, &counted.answered) {
            let own = simulated.families.iter().find(|family| family.family == name);
            let Some(simulated) = own.map(|family| family.quality) else { continue };
            all.push(Row::new("quality", simulated, measured, Some(QUALITY / simulated)));
        }
        if simulated.preempted + counted.preempted > 0 {
            let (simulated, measured) = (simulated.preempted as f64, counted.preempted as f64);
            all.push(Row::new("preempted batches", simulated, measured, None));
        }
        let mut models = vec![Rows { name: "all".to_owned(), rows: all }];
        if workload.models.len() > 1 {
            // Stages and variants need not have requests of their own.
            let pairs = simulated.models.iter().zip(&measured.models).filter(|(own, _)| own.offered > 0);
            models.extend(pairs.map(|(simulated, measured)| model(simulated, measured)));
        }
        let requests = simulated.models.iter().map(|model| model.offered as f64);
        let outside =
            workload.models.iter().zip(requests).map(|(model, count)| model.overhead.mean() * count);
        let offered = (simulated.requests.offered as f64).max(1.0);
        Self {
            workload: workload.name.clone(),
            seed: workload.seed,
            protocol: measured.target.protocol.clone(),
            tensors: measured.target.tensors.clone(),
            offered: Pair { simulated: simulated.requests.offered, measured: measured.total.offered },
            request_overhead_ms: outside.sum::<f64>() / offered / 1e6,
            batch_overhead_ms: workload.lanes.overhead.mean() / 1e6,
            profiles: if real { profiles(workload) } else { BTreeMap::new() },
            late_from: measured.client.late_from.clone(),
            models,
        }
    }

    /// Whether the figures of all models together are within the goals.
    pub fn within(&self) -> bool {
        let all = self.models.first();
        self.offered.simulated == self.offered.measured
            && all.is_some_and(|all| all.rows.iter().all(|row| row.within))
    }

    /// Prints the comparison as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}, seed {}: {} requests, over {} with {} tensors\n\
             calibration: {} ms per request outside the scheduler, {} ms per batch in addition to the model\n\n",
            self.workload,
            self.seed,
            number(self.offered.measured as f64),
            self.protocol,
            self.tensors,
            number(self.request_overhead_ms),
            number(self.batch_overhead_ms),
        );
        for (model, times) in &self.profiles {
            let times = times.iter().map(|(rows, millis)| format!("{rows}: {} ms", number(*millis)));
            let _ = writeln!(text, "measured batches of {model}: {}", times.collect::<Vec<_>>().join(", "));
        }
        if !self.profiles.is_empty() {
            text.push('\n');
        }
        if self.offered.simulated != self.offered.measured {
            let _ =
                writeln!(text, "NOT THE SAME REQUESTS: the simulator counted {}\n", self.offered.simulated);
        }
        let rows = self.models.iter().flat_map(|model| {
            model.rows.iter().map(|row| {
                let goal = row.goal.map_or_else(String::new, percent);
                let verdict = match (row.goal, row.within) {
                    (None, _) => "",
                    (Some(_), true) => "yes",
                    (Some(_), false) => "NO",
                };
                let share = matches!(row.figure, "attainment" | "quality");
                let show = |value| if share { percent(value) } else { number(value) };
                vec![
                    model.name.clone(),
                    row.figure.to_owned(),
                    show(row.simulated),
                    show(row.measured),
                    format!("{:+.1} %", row.difference * 100.0),
                    goal,
                    verdict.to_owned(),
                ]
            })
        });
        let header = ["model", "figure", "simulated", "measured", "difference", "goal", "within"];
        text.push_str(&output::table(&header, rows));
        if let Some(from) = &self.late_from {
            let _ = writeln!(
                text,
                "\nwarning: this client could not keep up: from {from} on results are not the server's"
            );
        }
        text
    }
}

/// At powers of two and the largest.
fn profiles(workload: &Workload) -> BTreeMap<String, BTreeMap<u32, f64>> {
    let of = |model: &workload::Model| {
        let profile = model.profile.as_ref()?;
        let sizes = workload::sizes(profile.max_batch());
        Some((model.name.clone(), sizes.map(|rows| (rows, profile.time(rows) as f64 / 1e6)).collect()))
    };
    workload.models.iter().filter_map(of).collect()
}

fn total(simulated: &sim::Report, measured: &loadtest::Report) -> Vec<Row> {
    let mut rows = vec![
        Row::new("goodput/s", simulated.goodput, measured.total.goodput, Some(GOODPUT)),
        Row::new("attainment", simulated.attainment, measured.total.attainment, None),
    ];
    if let (Some(simulated), Some(measured)) = (&simulated.latency_ms, &measured.total.latency) {
        rows.push(Row::new("p50 ms", simulated.p50, measured.p50_ms, Some(P50)));
        rows.push(Row::new("p99 ms", simulated.p99, measured.p99_ms, Some(P99)));
        rows.push(Row::new("mean ms", simulated.mean, measured.mean_ms, None));
    }
    rows
}

fn rows_a_batch(simulated: &sim::Report, measured: &loadtest::Report) -> Option<Row> {
    let batches = measured.models.iter().flat_map(|model| &model.batches);
    let (mut count, mut total) = (0.0, 0.0);
    for size in batches {
        count += size.batches as f64;
        total += (size.batches * size.rows) as f64;
    }
    (count > 0.0).then(|| Row::new("rows a batch", simulated.mean_batch, total / count, None))
}

fn model(simulated: &sim::report::ModelFigures, measured: &loadtest::report::ModelFigures) -> Rows {
    let goodput = simulated.good as f64;
    let mut rows = vec![Row::new("good answers", goodput, measured.figures.good as f64, Some(GOODPUT))];
    if let (Some(simulated), Some(measured)) = (simulated.p99_ms, &measured.figures.latency) {
        rows.push(Row::new("p99 ms", simulated, measured.p99_ms, Some(P99)));
    }
    Rows { name: measured.name.clone(), rows }
}
