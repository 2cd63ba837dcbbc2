//! Time that policies take to plan: `cargo bench -p gpulet-core`. One line a case; no thresholds, for machines differ.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark has a clock and fails by panicking"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use gpulet_core::check::check;
use gpulet_core::interference::{DevicePower, Igniter, Interference};
use gpulet_core::placement::Policy;
use gpulet_core::problem::{Device, DeviceKind, Problem, Workload};
use gpulet_core::profile::Profile;

const MODELS: [&str; 4] = ["alexnet", "resnet50", "vgg19", "ssd"];

fn problem(loads: impl Iterator<Item = (&'static str, f64, f64)>, gpus: usize) -> Problem {
    let kind = Arc::new(DeviceKind {
        name: "v100".to_owned(),
        units: 40,
        sizes: (1..=40).collect(),
        gpulets_max: 48,
        base_bytes: 0,
        gpulet_bytes: 0,
    });
    let device = |at| Device {
        name: format!("gpu{at:04}"),
        kind: Arc::clone(&kind),
        memory_bytes: 16_000_000_000,
        fault_domain: format!("gpu{at:04}"),
        cost: 1.0,
    };
    let workload = |(at, (model, slo_ms, rate)): (usize, (&str, f64, f64))| Workload {
        name: format!("w{at:04}"),
        model: model.to_owned(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: 1e3 * slo_ms,
        rate,
        head_room: 1.0,
        replicas_min: 1,
        batch_max: 32,
    };
    let profiles = Profile::read(include_str!("../examples/igniter-v100.jsonl")).unwrap();
    let igniter = Interference::Igniter(Igniter { devices: [("v100".to_owned(), DevicePower::V100)].into() });
    let workloads = loads.enumerate().map(workload).collect();
    Problem::new((0..gpus).map(device).collect(), workloads, profiles, igniter).unwrap()
}

/// The twelve workloads of iGniter's comparison script.
fn twelve() -> Problem {
    let slo_ms = [10.0, 15.0, 20.0, 10.0, 20.0, 30.0, 20.0, 30.0, 40.0, 30.0, 40.0, 50.0];
    let rates = [1000.0, 500.0, 2000.0, 400.0, 600.0, 200.0, 300.0, 400.0, 200.0, 200.0, 100.0, 300.0];
    let models = MODELS.iter().flat_map(|model| [*model; 3]);
    problem(models.zip(slo_ms).zip(rates).map(|((model, slo_ms), rate)| (model, slo_ms, rate)), 12)
}

/// So many workloads whose objectives and rates are spread evenly, half of them light, on as many devices.
fn many(count: u32) -> Problem {
    let spread = |at: u32, prime: u32| f64::from(at.wrapping_mul(prime) % 1_000) / 1_000.0;
    let models = MODELS.iter().copied().cycle();
    let loads = (0..count).zip(models).map(move |(at, model)| {
        let rate =
            if at % 2 == 0 { 1.0 + 20.0 * spread(at, 7_919) } else { 50.0 + 450.0 * spread(at, 7_919) };
        (model, 15.0 + 45.0 * spread(at, 104_729), rate)
    });
    problem(loads, usize::try_from(count).unwrap())
}

fn measure(name: &str, problem: &Problem, policy: &str, runs: u32) {
    let chosen = Policy::named(policy).unwrap();
    let start = Instant::now();
    for _ in 1..runs {
        black_box(chosen.place(black_box(problem)).ok());
    }
    let plan = chosen.place(problem);
    let each = start.elapsed() / runs;
    match plan {
        Ok(plan) => {
            let judged = check(problem, &plan);
            let sound = if judged.is_sound() { "sound" } else { "UNSOUND" };
            println!("{name:24} {policy:12} {each:>12.2?} {:5} devices, {sound}", judged.devices_used);
        }
        Err(infeasible) => println!("{name:24} {policy:12} {each:>12.2?} {infeasible}"),
    }
}

fn main() {
    for policy in Policy::NAMES {
        measure("12 workloads", &twelve(), policy, 20);
    }
    for count in [100, 1_000] {
        let problem = many(count);
        for policy in ["tessera", "igniter", "temporal"] {
            measure(&format!("{count} workloads"), &problem, policy, 1);
        }
        let plan = Policy::default().place(&problem).unwrap();
        let mut problem = problem.from_current(plan);
        problem = problem.with_rate("w0001", 400.0).unwrap();
        measure(&format!("{count}, one rate changed"), &problem, "tessera", 3);
    }
}
