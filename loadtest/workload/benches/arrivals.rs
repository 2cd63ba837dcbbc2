//! Arrivals and batch times a second on one core; prints, asserts nothing.

use std::hint::black_box;
use std::time::Duration;

use workload::{Arrivals, ExecutionNoise, Stage, Stages, Workload, WorkloadError};

fn parse(text: &str) -> Workload {
    let mut files = |name: &str| Err(format!("no file {name}"));
    sound(Workload::parse(text, &mut files))
}

fn sound<T>(made: Result<T, WorkloadError>) -> T {
    made.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    })
}

fn models(count: u32, arrivals: &str, requests: u64) -> Workload {
    parse(&format!(
        r#"
        name = "bench"
        seed = 1
        requests = {requests}
        [lanes]
        count = 8
        [lanes.noise]
        cv = 0.02
        stalls = {{ every = "10s", time = "200ms" }}
        [models.m]
        count = {count}
        slo = "25ms"
        profile = {{ alpha = "1.053ms", beta = "5.072ms", max_batch = 64 }}
        rate = 500.0
        arrivals = {arrivals}
        "#
    ))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}

fn print(what: &str, count: u64, took: Duration) {
    println!("{what:44} {:8.2} M/s", count as f64 / took.as_secs_f64() / 1e6);
}

fn main() {
    let count = 5_000_000;
    let cases = [
        ("1 model, poisson", 1, r#"{ process = "poisson" }"#),
        ("1 model, uniform", 1, r#"{ process = "uniform" }"#),
        ("1 model, gamma cv 4", 1, r#"{ process = "gamma", cv = 4.0 }"#),
        ("1 model, mmpp", 1, r#"{ process = "mmpp", rates = [0.5, 2.0], stay = ["2s", "1s"] }"#),
        ("1 model, diurnal", 1, r#"{ process = "diurnal", period = "60s", low = 0.2 }"#),
        ("1 model, flash", 1, r#"{ process = "flash", at = "20s", lasts = "5s", factor = 5.0 }"#),
        ("10 models, poisson", 10, r#"{ process = "poisson" }"#),
        ("1,000 models, poisson", 1_000, r#"{ process = "poisson" }"#),
        ("10,000 models, poisson", 10_000, r#"{ process = "poisson" }"#),
        ("10 models, gamma cv 4", 10, r#"{ process = "gamma", cv = 4.0 }"#),
    ];
    for (what, copies, arrivals) in cases {
        let workload = models(copies, arrivals, count);
        let took = timed(|| {
            let sum = Arrivals::new(&workload).fold(0_u64, |sum, offered| sum.wrapping_add(offered.at));
            black_box(sum);
        });
        print(what, count, took);
    }
    let workload = models(10, r#"{ process = "poisson" }"#, count);
    let ramp = sound(Stages::new(vec![
        Stage { from: 0.0, to: 2.0, time: 100_000_000_000 },
        Stage { from: 2.0, to: 0.5, time: 100_000_000_000 },
    ]));
    let whole = (0..5_000_000_u64).map(|step| step * (ramp.nominal() / 5_000_000));
    let took = timed(|| {
        black_box(whole.filter_map(|at| ramp.warp(at)).fold(0, u64::wrapping_add));
    });
    print("arrivals placed on a ramp", 5_000_000, took);
    let mut noise = sound(ExecutionNoise::new(&workload));
    let took = timed(|| {
        let mut now = 0_u64;
        for batch in 0..5_000_000_u32 {
            now += black_box(noise.time(batch % 8, batch % 10, 1 + batch % 64, now)) / 8;
        }
    });
    print("batch times with jitter and stalls, 8 lanes", count, took);
}
