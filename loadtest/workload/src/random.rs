//! Random workloads: unlike models that share lanes, for comparisons on workloads that no policy was tuned on.

mod pipelines;

use std::fmt::Write as _;

use rand::RngExt as _;

use crate::draws::exponential;
use crate::seeds::{Generator, Purpose, generator};

/// Requests of a run, about.
const REQUESTS: f64 = 120_000.0;
/// Seconds of measured traffic.
const SECONDS: (f64, f64) = (6.0, 40.0);
/// Seconds before measurement starts.
const WARMUP: f64 = 3.0;

/// Largest seed: a whole number in TOML, less the seeds after it that a comparison may take.
pub const SEED_MAX: u64 = i64::MAX as u64 - 10_000;

/// A random workload as the text of a workload file.
///
/// Lanes (1 to 64), models (1 to 40), times per row (0.1 to 10 ms) and per batch (0.3 to 30 ms) are log-uniform. The
/// largest batch is 8, 16, 32 or 64 rows. Objectives are 2.5 to 12 times the time of a batch of one row. The load is
/// uniform from 0.5 to 2 times the lane time of all models in batches that take half of their objective. Arrivals are
/// Poisson, gamma, MMPP, evenly spaced, diurnal or a flash crowd. Some workloads have noise in their batch times, profiles
/// that are wrong, or requests of several rows.
pub fn document(seed: u64) -> String {
    let (draw, lanes, count, load) = size(seed);
    let about = format!("{count} random models on {lanes} lanes at {load:.2} times their lane time");
    write_document((seed, draw), &format!("random-{seed}"), &about, (lanes, count, load), "")
}

/// A random workload of a fleet as the text of a workload file: models as in [`document`], three for every two nodes, with one or two
/// lanes a node, a load from 0.5 to 1.1, 8 to 24 models in the memory of a node, and views that are 100 ms old.
pub fn fleet_document(seed: u64, nodes: u32) -> String {
    let draw = Draw(generator(seed, Purpose::Workload, "fleet"));
    fleet_of((seed, draw), nodes, false)
}

/// Like [`fleet_document`], with two or three device types: the nodes of the first one are as fast as the models' profiles, the others
/// have 0.25 to 0.8 times its speed, and for each model 0.7 to 1.3 times that. A lane costs about as much as it is fast.
pub fn unequal_fleet_document(seed: u64, nodes: u32) -> String {
    let draw = Draw(generator(seed, Purpose::Workload, "unequal fleet"));
    fleet_of((seed, draw), nodes, true)
}

fn fleet_of((seed, mut draw): (u64, Draw), nodes: u32, is_unequal: bool) -> String {
    let lanes = f64::from(nodes) * draw.uniform(1.0, 2.99).floor();
    let load = draw.uniform(0.5, 1.1);
    let count = (nodes * 3 / 2).clamp(3, 2_000);
    let memory = draw.log_uniform(8.0, 24.99) as u32;
    let about = format!(
        "{count} random models on {nodes} nodes with {lanes} lanes at {load:.2} times their lane time"
    );
    let zones = nodes.min(3);
    let mut fleet = format!("\n[fleet]\nnodes = {nodes}\nmodels_per_node = {memory}\nzones = {zones}\n");
    let mut speed_of_all = 0.0;
    let types = if is_unequal { draw.node_types(nodes) } else { Vec::new() };
    for (number, (of_type, speed, cost)) in types.into_iter().enumerate() {
        let speeds: Vec<String> = (0..count)
            .map(|model| {
                let own = if number == 0 { 1.0 } else { draw.uniform(0.7, 1.3) };
                format!("m{model} = {:.3}", speed * own)
            })
            .collect();
        speed_of_all += f64::from(of_type) * speed;
        let _ = write!(
            fleet,
            "[[fleet.types]]\nname = \"t{number}\"\nnodes = {of_type}\nspeed = {speed:.3}\ncost = {cost:.3}\n\
             speeds = {{ {} }}\n",
            speeds.join(", ")
        );
    }
    let (kind, load) = match is_unequal {
        true => ("unequal-fleet", load * speed_of_all / f64::from(nodes)),
        false => ("fleet", load),
    };
    write_document((seed, draw), &format!("{kind}-{nodes}-{seed}"), &about, (lanes, count, load), &fleet)
}

fn write_document(
    (seed, mut draw): (u64, Draw),
    name: &str,
    about: &str,
    (lanes, count, load): (f64, u32, f64),
    sections: &str,
) -> String {
    let noise = draw.noise();
    let many_rows = draw.chance(0.25);
    let mut models: Vec<Model> = (0..count).map(|_| draw.model(many_rows)).collect();
    let weights: f64 = models.iter().map(|model| model.weight).sum();
    for model in &mut models {
        model.rate = load * lanes * model.weight / weights / model.request_time();
    }
    let rate: f64 = models.iter().map(|model| model.rate).sum();
    let seconds = (REQUESTS / rate).clamp(SECONDS.0, SECONDS.1).ceil();
    let mut text = format!(
        "name = \"{name}\"\nabout = \"{about}\"\n\
         seed = {seed}\nduration = \"{}s\"\nwarmup = \"{WARMUP}s\"\n\n[lanes]\ncount = {lanes}\n{noise}{sections}",
        seconds + WARMUP
    );
    for (number, model) in models.iter().enumerate() {
        let arrivals = draw.arrivals(WARMUP + seconds);
        let _ = write!(
            text,
            "\n[models.m{number}]\nslo = \"{}us\"\nprofile = {{ alpha = \"{}us\", beta = \"{}us\", max_batch = {} }}\n\
             rate = {:.3}\nrows = {}\narrivals = {arrivals}\n",
            micros(model.slo),
            micros(model.row),
            micros(model.batch),
            model.max_batch,
            model.rate.max(0.001),
            model.rows_text(),
        );
    }
    text
}

/// A random workload of pipelines as the text of a workload file: models as in [`document`], and one or two pipelines of two to five
/// stages, some with branches and joins, fan-outs from 0.3 to 4, and stages that answer early. Some models have traffic of their own.
/// Objectives are 2.5 to 10 times the stages alone; the load is uniform from 0.5 to 1.3 times the lane time of all.
pub fn pipeline_document(seed: u64) -> String {
    let mut draw = Draw(generator(seed, Purpose::Workload, "pipelines"));
    pipelines::document(seed, &mut draw)
}

/// The lane time that the models of a random workload need, relative to its lanes, 0.5 to 2 (see [`document`]).
pub fn load(seed: u64) -> f64 {
    size(seed).3
}

/// The draws of a seed after the first ones: lanes, models and load.
fn size(seed: u64) -> (Draw, f64, u32, f64) {
    let mut draw = Draw(generator(seed, Purpose::Workload, ""));
    let lanes = draw.log_uniform(1.0, 64.99).floor();
    let count = draw.log_uniform(1.0, 40.99).floor() as u32;
    let load = draw.uniform(0.5, 2.0);
    (draw, lanes, count, load)
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round().max(1.0) as u64
}

struct Model {
    /// Seconds a row and a batch.
    row: f64,
    batch: f64,
    max_batch: u32,
    /// Objective in seconds.
    slo: f64,
    /// Rows of a request, and the share of requests of that size.
    rows: Vec<(u32, f64)>,
    /// Share of the lane time, relative to the other models.
    weight: f64,
    rate: f64,
}

impl Model {
    /// Lane seconds of a request in batches that take half of the objective.
    fn request_time(&self) -> f64 {
        let time = |rows: u32| self.row * f64::from(rows) + self.batch;
        let fits = |rows: &u32| 2.0 * time(*rows) <= self.slo;
        let best = (1..=self.max_batch).take_while(fits).last().unwrap_or(1);
        let mean: f64 = self.rows.iter().map(|(rows, share)| f64::from(*rows) * share).sum();
        time(best) / f64::from(best) * mean
    }

    fn rows_text(&self) -> String {
        let each: Vec<String> = self.rows.iter().map(|(rows, share)| format!("[{rows}, {share}]")).collect();
        format!("[{}]", each.join(", "))
    }
}

struct Draw(Generator);

impl Draw {
    /// Nodes, speed and cost of each device type of a fleet.
    fn node_types(&mut self, nodes: u32) -> Vec<(u32, f64, f64)> {
        let shares: Vec<f64> = (0..2 + u32::from(self.chance(0.5))).map(|_| self.uniform(1.0, 3.0)).collect();
        let sum: f64 = shares.iter().sum();
        let mut left = nodes;
        let mut types = Vec::new();
        for (number, share) in shares.iter().enumerate() {
            let is_last = number + 1 == shares.len();
            let part = (f64::from(nodes) * share / sum).round() as u32;
            let of_type = if is_last { left } else { part.min(left) };
            left -= of_type;
            let speed = if number == 0 { 1.0 } else { self.uniform(0.25, 0.8) };
            let cost = speed * self.uniform(0.7, 1.3);
            if of_type > 0 {
                types.push((of_type, speed, cost));
            }
        }
        types
    }

    fn uniform(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.0.random::<f64>()
    }

    fn log_uniform(&mut self, from: f64, to: f64) -> f64 {
        libm::exp(self.uniform(libm::log(from), libm::log(to)))
    }

    fn chance(&mut self, share: f64) -> bool {
        self.0.random::<f64>() < share
    }

    fn model(&mut self, many_rows: bool) -> Model {
        let (row, batch) = (self.log_uniform(1e-4, 1e-2), self.log_uniform(3e-4, 3e-2));
        let max_batch = 8 << (self.uniform(0.0, 4.0) as u32).min(3);
        let slo = self.log_uniform(2.5, 12.0) * (row + batch);
        let rows = match (many_rows, self.uniform(0.0, 3.0) as u32) {
            (false, _) | (true, 0) => vec![(1, 1.0)],
            (true, 1) => vec![(1, 0.8), (4, 0.2)],
            (true, _) => vec![(1, 0.5), (2, 0.3), (3, 0.2)],
        };
        // Rows of a request take at most two fifths of the objective, or the request could never be answered.
        let fits = |rows: u32| row * f64::from(rows) + batch <= 0.4 * slo;
        let rows = if rows.iter().all(|(rows, _)| fits(*rows)) { rows } else { vec![(1, 1.0)] };
        Model { row, batch, max_batch, slo, rows, weight: exponential(&mut self.0).max(0.02), rate: 0.0 }
    }

    fn arrivals(&mut self, length: f64) -> String {
        let share = self.0.random::<f64>();
        match share {
            _ if share < 0.40 => "{ process = \"poisson\" }".to_owned(),
            _ if share < 0.55 => "{ process = \"gamma\", cv = 2.0 }".to_owned(),
            _ if share < 0.68 => "{ process = \"gamma\", cv = 4.0 }".to_owned(),
            _ if share < 0.80 => {
                "{ process = \"mmpp\", rates = [0.5, 2.0], stay = [\"2s\", \"1s\"] }".to_owned()
            }
            _ if share < 0.86 => "{ process = \"uniform\" }".to_owned(),
            _ if share < 0.93 => {
                let period = self.uniform(0.5, 1.0) * length;
                let low = self.uniform(0.2, 0.8);
                format!("{{ process = \"diurnal\", period = \"{period:.3}s\", low = {low:.3} }}")
            }
            _ => {
                let at = self.uniform(WARMUP, 0.8 * length);
                let (lasts, factor) = (self.uniform(0.5, 2.0), self.uniform(2.0, 5.0));
                format!(
                    "{{ process = \"flash\", at = \"{at:.3}s\", lasts = \"{lasts:.3}s\", factor = {factor:.2} }}"
                )
            }
        }
    }

    fn noise(&mut self) -> String {
        if self.chance(0.5) {
            return String::new();
        }
        let mut text = format!("\n[lanes.noise]\ncv = {:.3}\n", self.uniform(0.01, 0.1));
        if self.chance(0.3) {
            let _ = writeln!(text, "bias = {:.3}", self.uniform(0.9, 1.2));
        }
        if self.chance(0.3) {
            let _ = writeln!(text, "spread = {:.3}", self.uniform(0.05, 0.2));
        }
        if self.chance(0.2) {
            let (every, time) = (self.uniform(0.5, 3.0), self.uniform(0.002, 0.02));
            let _ = writeln!(text, "stalls = {{ every = \"{every:.3}s\", time = \"{time:.4}s\" }}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn every_seed_gives_a_valid_workload_and_always_the_same() {
        let mut files = |_: &str| Err("no files".to_owned());
        for seed in (0..500).chain([SEED_MAX, SEED_MAX + 10_000]) {
            let text = document(seed);
            assert_eq!(text, document(seed));
            let workload = Workload::parse(&text, &mut files);
            let workload = workload.unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
            assert!((1..=64).contains(&workload.lanes.count) && workload.models.len() <= 40);
            assert_eq!(workload.seed, seed);
            assert!(text.contains(&format!("at {:.2} times", load(seed))), "{text}");
            let text = pipeline_document(seed);
            assert_eq!(text, pipeline_document(seed));
            let workload = Workload::parse(&text, &mut files);
            let workload = workload.unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
            assert!(workload.pipelines().count() >= 1 && workload.mean_rate() > 0.0);
        }
    }
}
