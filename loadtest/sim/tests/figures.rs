//! The figures that the default policy is held to. Virtual time: the same on every machine.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use router_core::batch::{BatchOptions, Policy};
use sim::report::Bucket;
use sim::{Report, Setup, Simulation};
use workload::Workload;

const LANES: u32 = 8;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// `count` models whose batches of b rows take alpha b + beta milliseconds. The offered load is divided equally among
/// them.
#[derive(Clone, Copy)]
struct Models {
    alpha: f64,
    beta: f64,
    slo_ms: f64,
    count: u32,
}

const FIRST: Models = Models { alpha: 1.053, beta: 5.072, slo_ms: 25.0, count: 1 };
const SECOND: Models = Models { alpha: 5.090, beta: 18.368, slo_ms: 70.0, count: 1 };
const TEN: Models = Models { count: 10, ..FIRST };

impl Models {
    fn workload(self, rate: f64, seed: u64, extent: &str, arrivals: &str) -> Workload {
        let Self { alpha, beta, slo_ms, count } = self;
        let rate = rate / f64::from(count);
        let text = format!(
            r#"
            name = "figures"
            {extent}
            warmup = "2s"
            seed = {seed}
            [lanes]
            count = {LANES}
            [models.m]
            count = {count}
            slo = "{slo_ms}ms"
            profile = {{ alpha = "{alpha}ms", beta = "{beta}ms", max_batch = 64 }}
            rate = {rate}
            arrivals = {arrivals}
            "#
        );
        Workload::parse(&text, &mut |name| Err(format!("no file {name}"))).unwrap()
    }

    /// Mean attainment and good answers a second under Poisson arrivals, nothing told of the rate.
    fn measured(self, rate: f64, requests: u64) -> (f64, f64) {
        let extent = format!("requests = {requests}");
        let poisson = r#"{ process = "poisson" }"#;
        let runs: Vec<Report> =
            SEEDS.map(|seed| run(&self.workload(rate, seed, &extent, poisson), &Setup::default())).collect();
        let mean = |value: fn(&Report) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
        let (attainment, goodput) = (mean(|run| run.attainment), mean(|run| run.goodput));
        println!(
            "{} x l(b) = {} b + {} ms at {rate}/s: {attainment:.5}, {goodput:.0} good/s",
            self.count, self.alpha, self.beta
        );
        (attainment, goodput)
    }
}

fn run(workload: &Workload, setup: &Setup) -> Report {
    Simulation::new(workload, setup).unwrap().run(&mut |_| {}).unwrap()
}

/// 95 % of the bound for evenly staggered batches, 5,839 requests a second, with a million requests a seed.
#[test]
fn one_model_on_eight_lanes() {
    let (attainment, _) = FIRST.measured(5_547.0, 1_000_000);
    assert!(attainment >= 0.99);
    let (_, goodput) = FIRST.measured(2.0 * 5_839.0, 400_000);
    assert!(goodput >= 5_720.0, "98 % of the bound, at twice the bound");
}

/// The aim was 996, 92 % of the bound of 1,083; what is reached is 995.
#[test]
fn a_slower_model_on_eight_lanes() {
    let (attainment, _) = SECOND.measured(994.0, 1_000_000);
    assert!(attainment >= 0.99);
    let (_, goodput) = SECOND.measured(2.0 * 1_083.0, 400_000);
    assert!(goodput >= 1_060.0);
}

/// The aim was 4,000; what is reached is 3,952 (the best of the published policies: 3,896). A rule of the same shape that
/// was fitted to these ten equal models reached 3,969, and lost up to 43 % on unlike ones.
#[test]
fn ten_models_on_eight_lanes() {
    let (attainment, _) = TEN.measured(3_950.0, 1_000_000);
    assert!(attainment >= 0.99);
    let (_, goodput) = TEN.measured(8_000.0, 400_000);
    assert!(goodput >= 4_800.0);
}

/// After a second of three times the traffic at 90 % of capacity: seconds from the end of the burst until 99 % are
/// answered well again, a second long; and what share is from two seconds after its end on.
fn recovery(models: Models, capacity: f64, policy: &Policy) -> (Option<f64>, f64) {
    let flash = r#"{ process = "flash", at = "10s", lasts = "1s", factor = 3.0 }"#;
    let workload = models.workload(0.9 * capacity, 1, r#"duration = "41s""#, flash);
    let report = run(&workload, &Setup::new(policy.clone()));
    let attainment = |buckets: &[Bucket]| {
        let sum = |count: fn(&Bucket) -> u64| buckets.iter().map(count).sum::<u64>() as f64;
        sum(|bucket| bucket.good) / sum(|bucket| bucket.offered)
    };
    let after: Vec<Bucket> = report.series.into_iter().filter(|bucket| bucket.t >= 11.0).collect();
    let again = after.windows(5).find(|buckets| attainment(buckets) >= 0.99);
    let settled: Vec<Bucket> = after.iter().filter(|bucket| bucket.t >= 13.0).cloned().collect();
    (again.map(|buckets| buckets[0].t - 11.0), attainment(&settled))
}

#[test]
fn a_burst_is_over_within_two_seconds() {
    for (models, capacity) in [(FIRST, 5_547.0), (SECOND, 994.0), (TEN, 3_965.0)] {
        for (name, _) in Policy::ALL {
            let policy = Policy::new(name, &BatchOptions::default()).unwrap();
            let (recovered, settled) = recovery(models, capacity, &policy);
            let Models { alpha, beta, count, .. } = models;
            println!(
                "{name}, {count} x l(b) = {alpha} b + {beta} ms: good again after {recovered:?} s, then {settled:.4}"
            );
            if policy.name() == Policy::default().name() {
                assert!(recovered.is_some_and(|seconds| seconds <= 2.0), "{recovered:?}");
                assert!(settled >= 0.999, "{settled}");
            }
        }
    }
}

/// Good answers a second from 30 s on, of two models with long batches and more traffic than lanes; `company` adds a
/// model with a tight objective that sends for the first 10 s and never again.
fn good_after_company(company: bool) -> f64 {
    let times: String = (0..20_000).map(|n| format!("{},tiny\n", f64::from(n) / 2_000.0)).collect();
    let tiny = r#"
        [models.tiny]
        slo = "15ms"
        profile = { alpha = "0.08ms", beta = "0.9ms", max_batch = 64 }
        arrivals = { process = "trace", format = "timestamps", file = "t.csv", repeat = false }
        "#;
    let text = format!(
        r#"
        name = "silence"
        duration = "60s"
        [lanes]
        count = {LANES}
        [models.huge]
        count = 2
        slo = "500ms"
        profile = {{ alpha = "20ms", beta = "60ms", max_batch = 16 }}
        rate = 200.0
        {}
        "#,
        if company { tiny } else { "" }
    );
    let workload = Workload::parse(&text, &mut |_| Ok(format!("seconds,model\n{times}"))).unwrap();
    let report = run(&workload, &Setup::default());
    let late = report.series.iter().filter(|bucket| bucket.t >= 30.0);
    late.map(|bucket| bucket.good).sum::<u64>() as f64 / 30.0
}

#[test]
fn lanes_are_not_kept_for_a_model_that_has_fallen_silent() {
    let (after, alone) = (good_after_company(true), good_after_company(false));
    println!("{after:.0} good/s after the other fell silent, {alone:.0} without it");
    assert!(after >= 0.97 * alone);
}

/// One lane that answers 615 requests a second at most, within an objective of nearly five of its largest batches.
fn overloaded(factor: f64) -> Report {
    let rate = 615.0 * factor;
    let text = format!(
        r#"
        name = "overload"
        duration = "20s"
        warmup = "4s"
        [lanes]
        count = 1
        [models.m]
        slo = "250ms"
        profile = {{ alpha = "1ms", beta = "20ms", max_batch = 32 }}
        rate = 307.0
        arrivals = {{ process = "flash", at = "4s", lasts = "16s", factor = {} }}
        "#,
        rate / 307.0
    );
    run(&Workload::parse(&text, &mut |name| Err(format!("no file {name}"))).unwrap(), &Setup::default())
}

#[test]
fn refusals_under_overload_come_on_arrival() {
    for (factor, late_at_most) in [(1.2, 0.05), (2.0, 0.01), (5.0, 0.01)] {
        let report = overloaded(factor);
        let shed = report.requests.refused.get("shed").copied().unwrap_or(0);
        let late = shed as f64 / report.requests.refused_in_all() as f64;
        println!(
            "{factor} times: {:.0} good/s, {:.2} % refused only after they had waited",
            report.goodput,
            100.0 * late
        );
        assert!(late <= late_at_most, "{shed} were dropped only after they had waited");
        assert!(report.goodput >= 0.98 * 615.0);
    }
}

/// Two lanes stall now and then. Batch times vary and the model gains nothing by batching. The load is below capacity.
/// Requests delayed by a stall can still be answered, so the router rejects none of them.
#[test]
fn a_stall_is_not_an_overload() {
    let text = r#"
        name = "stalls"
        requests = 120_000
        warmup = "2s"
        [lanes]
        count = 2
        [lanes.noise]
        cv = 0.15
        stalls = { time = "60ms", every = "2s" }
        [models.m]
        slo = "71ms"
        profile = { alpha = "9.6ms", beta = "0.1ms", max_batch = 32 }
        rate = 162.0
        "#;
    let workload = Workload::parse(text, &mut |name| Err(format!("no file {name}"))).unwrap();
    let report = run(&workload, &Setup::default());
    println!(
        "{:.4} of what two stalling lanes were sent at 78 % load was answered in time",
        report.attainment
    );
    assert!(report.attainment >= 0.98);
}
