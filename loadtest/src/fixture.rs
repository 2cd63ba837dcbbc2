//! Reports drawn from a model of a server, for the tests of everything that shows or compares reports.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use crate::figures::{figures, latency, second};
use crate::outcome::Outcome;
use crate::record::{Due, Objective, Record, SECOND, Tally};
use crate::report::{BatchSize, Client, Driven, FORMAT, Figures, ModelFigures, Report, StageFigures, Target};

/// A synthetic server and load.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    /// Of the arrivals: two draws with the same have the same load.
    pub(crate) load_seed: u64,
    /// Of what the server does.
    pub(crate) seed: u64,
    pub(crate) warmup: u64,
    pub(crate) seconds: u64,
    /// Requests a second, Poisson.
    pub(crate) rate: f64,
    /// Multiples of the rate, one after the other, equally long.
    pub(crate) scales: Vec<f64>,
    /// Requests a second beyond which the server refuses.
    pub(crate) capacity: f64,
    /// Name, SLO and median latency, both in milliseconds.
    pub(crate) models: Vec<(&'static str, f64, f64)>,
    /// All latencies times this.
    pub(crate) slower: f64,
    /// How much latencies wander from second to second (standard deviation of their logarithm), and how much of it
    /// stays a second later.
    pub(crate) wander: (f64, f64),
    /// Whether seconds keep their histograms.
    pub(crate) keep: bool,
}

impl Default for Draw {
    fn default() -> Self {
        Self {
            load_seed: 1,
            seed: 1,
            warmup: 0,
            seconds: 20,
            rate: 500.0,
            scales: vec![1.0],
            capacity: f64::INFINITY,
            models: vec![("resnet", 25.0, 8.0)],
            slower: 1.0,
            wander: (0.0, 0.0),
            keep: false,
        }
    }
}

fn normal(generator: &mut Xoshiro256PlusPlus) -> f64 {
    let (radius, angle): (f64, f64) = (generator.random::<f64>(), generator.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

fn poisson(generator: &mut Xoshiro256PlusPlus, mean: f64) -> u64 {
    let (mut time, mut count) = (0.0, 0);
    loop {
        time -= (1.0 - generator.random::<f64>()).ln() / mean;
        if time > 1.0 {
            return count;
        }
        count += 1;
    }
}

impl Draw {
    pub(crate) fn report(&self) -> Report {
        let mut loads = Xoshiro256PlusPlus::seed_from_u64(self.load_seed);
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x5eed);
        let all = self.warmup + self.seconds;
        let nanos = |ms: f64| (ms * 1e6) as u64;
        let objectives = self.models.iter().map(|(_, slo, _)| Objective { slo: nanos(*slo), deadline: true });
        let warmup = self.warmup * SECOND;
        let mut record = Record::new(objectives.collect(), self.scales.len(), warmup, true);
        let (mut drift, mut refusals) = (0.0, 0_u64);
        let (spread, stays) = self.wander;
        for t in 0..all {
            drift = stays * drift + (1.0 - stays * stays).sqrt() * normal(&mut chance);
            let stage = (t * self.scales.len() as u64 / all) as u32;
            let offered = poisson(&mut loads, self.rate * self.scales[stage as usize]);
            let refused = (1.0 - self.capacity / offered.max(1) as f64).max(0.0);
            let busy = 1.0 + 0.8 * (offered as f64 / self.capacity).min(1.2).powi(3);
            for _ in 0..offered {
                let model = loads.random_range(0..self.models.len());
                let due = Due { model: model as u32, stage, at: t * SECOND };
                record.due(due);
                record.begun(due, 40_000 + 10_000 * (t % 7));
                let message = String::new();
                let (outcome, ms) = if chance.random::<f64>() < refused {
                    refusals += 1;
                    let reason =
                        if refusals.is_multiple_of(9) { "overloaded" } else { "deadline_unmeetable" };
                    (
                        Outcome::Refused { reason: reason.to_owned(), message },
                        0.7 + refusals as f64 % 300.0 / 1e3,
                    )
                } else if chance.random::<f64>() < 2e-5 {
                    (Outcome::Failed { reason: "timeout".to_owned(), message }, 0.0)
                } else {
                    let spread = (0.35 * normal(&mut chance) + spread * drift).exp();
                    (Outcome::Answered, self.models[model].2 * self.slower * busy * spread)
                };
                record.ended(due, outcome, nanos(ms), nanos(0.99 * ms));
            }
        }
        let measured = self.seconds as f64;
        let mut total = Tally::default();
        record.models.iter().for_each(|tally| total.add(tally));
        let total = self.figures(&total, measured);
        let length = all as f64 / self.scales.len() as f64;
        let stages = record.stages.iter().zip(&self.scales).enumerate().map(|(place, (tally, scale))| {
            let from_s = place as f64 * length;
            let figures = self.figures(tally, length);
            StageFigures { from_s, to_s: from_s + length, scale_from: *scale, scale_to: *scale, figures }
        });
        let models = self.models.iter().zip(&record.models).map(|((name, slo_ms, _), tally)| ModelFigures {
            name: (*name).to_owned(),
            served_as: (*name).to_owned(),
            slo_ms: *slo_ms,
            figures: self.figures(tally, measured),
            server: None,
            batches: batches(name),
        });
        Report {
            format: FORMAT,
            version: "0.1.0".to_owned(),
            workload: "pair".to_owned(),
            seed: self.load_seed,
            target: Target {
                url: "http://127.0.0.1:8000".to_owned(),
                protocol: "http".to_owned(),
                tensors: "binary".to_owned(),
                server: "tessera 0.1.0".to_owned(),
            },
            driven: Driven::Open,
            started: "2026-11-21T13:01:40Z".to_owned(),
            warmup_s: self.warmup as f64,
            measured_s: measured,
            interrupted: false,
            models: models.collect(),
            stages: stages.collect(),
            seconds: record.seconds.iter().map(|(&t, tally)| second(t, tally, SECOND, self.keep)).collect(),
            client: client(total.offered),
            capacity: None,
            messages: BTreeMap::new(),
            timings: Vec::new(),
            total,
        }
    }

    /// With the histograms that few tests need, or without.
    fn figures(&self, tally: &Tally, seconds: f64) -> Figures {
        let figures = figures(tally, seconds);
        if self.keep { figures } else { Figures { service: None, refusal: None, ..figures } }
    }
}

fn batches(name: &str) -> Vec<BatchSize> {
    let shift = name.len() as u64;
    let size =
        |(rows, batches)| BatchSize { rows, batches, compute_ms: 3.0 + 0.4 * rows as f64, overhead_ms: 0.1 };
    [(1, 40), (2, 90), (3, 160), (4, 300), (6, 200), (8, 420 * shift), (16, 60)].map(size).to_vec()
}

fn client(offered: u64) -> Client {
    let mut error = Histogram::new(3).unwrap();
    (0..offered.min(2_000)).for_each(|place| error.record(20 + place % 60).unwrap());
    Client {
        threads: 1,
        connections: 64,
        held: 0,
        send_error: latency(&Some(error)),
        busy: 0.31,
        cpu_us: 21.5,
        late_from: None,
        late_seconds: 0,
    }
}

/// A run as it may be: three models, four stages of which the last is too much, a few seconds of warm-up.
pub(crate) fn report() -> Report {
    Draw {
        warmup: 4,
        seconds: 56,
        rate: 400.0,
        scales: vec![0.5, 1.0, 1.5, 2.5],
        capacity: 700.0,
        models: vec![("resnet", 50.0, 9.0), ("bert <base>", 100.0, 24.0), ("tiny", 10.0, 1.4)],
        wander: (0.1, 0.6),
        keep: true,
        ..Draw::default()
    }
    .report()
}

/// A run of one model at one rate.
pub(crate) fn plain() -> Report {
    Draw { seconds: 30, ..Draw::default() }.report()
}

/// A run in which nothing happened.
pub(crate) fn idle() -> Report {
    let mut report = plain();
    for figures in [&mut report.total, &mut report.models[0].figures] {
        *figures = Figures { attainment: 1.0, refused: BTreeMap::new(), ..Figures::default() };
    }
    report.models[0].batches.clear();
    report.stages.clear();
    report.seconds.clear();
    report.client.send_error = None;
    report
}
