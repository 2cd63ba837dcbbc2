//! Random small workloads hold every invariant under every policy, lose no request and exceed no bound.

use proptest::prelude::*;
use sim::bound;

use crate::support::{every_policy, parse, run};

#[derive(Clone, Debug)]
struct Sketch {
    seed: u64,
    lanes: u32,
    noise: &'static str,
    failure: Option<(u32, u32)>,
    models: Vec<Traffic>,
}

#[derive(Clone, Debug)]
struct Traffic {
    slo_ms: u32,
    alpha_us: u32,
    beta_us: u32,
    max_batch: u32,
    load: f64,
    arrivals: &'static str,
    priority: u32,
    deadline: bool,
    rows: &'static str,
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let arrivals = prop::sample::select(vec![
        r#"{ process = "poisson" }"#,
        r#"{ process = "gamma", cv = 4.0 }"#,
        r#"{ process = "uniform" }"#,
        r#"{ process = "flash", at = "200ms", lasts = "100ms", factor = 6.0 }"#,
    ]);
    let times = (20_u32..80, 100_u32..2_000, 100_u32..5_000, prop::sample::select(vec![2_u32, 8, 32]));
    let kind = (0_u32..3, prop::bool::weighted(0.8), prop::sample::select(vec!["1", "[[1, 0.7], [2, 0.3]]"]));
    (times, 0.1_f64..2.0, arrivals, kind).prop_map(
        |((slo_ms, alpha_us, beta_us, max_batch), load, arrivals, (priority, deadline, rows))| Traffic {
            slo_ms,
            alpha_us,
            beta_us,
            max_batch,
            load,
            arrivals,
            priority,
            deadline,
            rows,
        },
    )
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let noise = prop::sample::select(vec![
        "",
        r#"noise = { cv = 0.2 }"#,
        r#"noise = { bias = 1.3, spread = 0.2, cv = 0.05 }"#,
        r#"noise = { stalls = { every = "100ms", time = "15ms" } }"#,
    ]);
    let failure = prop::option::of((0_u32..300, 1_u32..200));
    (0_u64..1_000, 1_u32..5, noise, failure, prop::collection::vec(traffic(), 1..4))
        .prop_map(|(seed, lanes, noise, failure, models)| Sketch { seed, lanes, noise, failure, models })
}

impl Sketch {
    /// Half a second of traffic; load 1 is what one lane does in batches of one.
    fn text(&self) -> String {
        let Self { seed, lanes, noise, failure, models } = self;
        let mut text = format!("name = \"random\"\nseed = {seed}\nduration = \"500ms\"\nwarmup = \"50ms\"\n");
        text += &format!("[lanes]\ncount = {lanes}\n{noise}\n");
        if let Some((from, lasts)) = failure {
            text += &format!(
                "[[lanes.failures]]\nlane = 0\nfrom = \"{from}ms\"\nuntil = \"{}ms\"\n",
                from + lasts
            );
        }
        for (index, model) in models.iter().enumerate() {
            let Traffic { slo_ms, alpha_us, beta_us, max_batch, load, arrivals, priority, deadline, rows } =
                model;
            let rate = load * 1e6 / f64::from(alpha_us + beta_us);
            text += &format!(
                "[models.m{index}]\nslo = \"{slo_ms}ms\"\nrate = {rate}\narrivals = {arrivals}\npriority = {priority}\n\
                 deadline = {deadline}\nrows = {rows}\n\
                 profile = {{ alpha = \"{alpha_us}us\", beta = \"{beta_us}us\", max_batch = {max_batch} }}\n"
            );
        }
        text
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 24 } else { 128 }))]

    #[test]
    fn invariants_hold_and_no_request_is_lost(sketch in sketch()) {
        let workload = parse(&sketch.text());
        let exact = sketch.noise.is_empty();
        let most = bound(&workload).unwrap();
        for setup in every_policy() {
            let report = run(&workload, &setup.checked());
            let requests = &report.requests;
            let ends = requests.good + requests.late + requests.refused_in_all() + requests.expired + requests.failed;
            prop_assert_eq!(ends, requests.offered, "{}", report.policy);
            prop_assert!(requests.unfinished == 0 && report.stopped.is_none());
            let share = report.lane_busy;
            prop_assert!((0.0..=1.0 + 1e-9).contains(&share) && report.lost_lane_time <= share + 1e-9);
            prop_assert_eq!((most.offered_rate - report.offered_rate).abs() < 1e-6, true);
            let within = report.goodput <= most.goodput + 1e-6;
            prop_assert!(!exact || within, "{}: {} a second, at most {:?}", report.policy, report.goodput, most);
        }
    }
}
