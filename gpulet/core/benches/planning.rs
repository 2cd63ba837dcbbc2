//! Measures how long each policy takes to plan: `cargo bench -p gpulet-core --bench planning [-- WORD]`. With a word,
//! runs only the cases whose line contains it. Prints one line per case. There are no thresholds, because machines
//! differ.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a benchmark has a clock and fails by panicking"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use gpulet_core::placement::{Exact, Policy};
use gpulet_core::problem::{Problem, Workload};
use gpulet_core::validate::validate;

#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/suite/support.rs"]
mod support;

use support::{igniter_problem, igniter_twelve, workload};

/// Returns `count` workloads and `count` devices. Objectives and rates are spread evenly; half of the workloads are
/// light.
fn many(count: u32) -> Problem {
    let spread = |at: u32, prime: u32| f64::from(at.wrapping_mul(prime) % 1_000) / 1_000.0;
    let models = ["alexnet", "resnet50", "vgg19", "ssd"].into_iter().cycle();
    let of = |(at, model): (u32, &str)| {
        let rate =
            if at % 2 == 0 { 1.0 + 20.0 * spread(at, 7_919) } else { 50.0 + 450.0 * spread(at, 7_919) };
        Workload { name: format!("w{at:04}"), ..workload(model, 15.0 + 45.0 * spread(at, 104_729), rate) }
    };
    igniter_problem((0..count).zip(models).map(of).collect(), usize::try_from(count).unwrap())
}

/// Returns the shortest time of several runs, because other activity on the machine only adds time.
fn shortest<T>(runs: u32, run: impl Fn() -> T) -> (Duration, T) {
    let timed = || {
        let start = Instant::now();
        let answer = black_box(run());
        (start.elapsed(), answer)
    };
    (1..runs).fold(timed(), |best, _| {
        let next = timed();
        if next.0 < best.0 { next } else { best }
    })
}

/// Returns whether the case was selected on the command line.
fn wanted(name: &str, policy: &str) -> bool {
    let word = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    word.is_none_or(|word| format!("{name} {policy}").contains(&word))
}

fn measure(name: &str, problem: &Problem, policy: &str, runs: u32) {
    if !wanted(name, policy) {
        return;
    }
    let chosen = Policy::named(policy).unwrap();
    let (time, plan) = shortest(runs, || chosen.place(black_box(problem)));
    match plan {
        Ok(plan) => {
            let validated = validate(problem, &plan);
            let sound = if validated.is_sound() { "sound" } else { "UNSOUND" };
            println!("{name:24} {policy:12} {time:>12.2?} {:5} devices, {sound}", validated.devices_used);
        }
        Err(infeasible) => println!("{name:24} {policy:12} {time:>12.2?} {infeasible}"),
    }
}

fn main() {
    for policy in Policy::NAMES {
        measure("12 workloads", &igniter_problem(igniter_twelve(), 12), policy, 20);
    }
    for count in [100, 1_000] {
        let problem = many(count);
        for policy in ["tessera", "igniter", "temporal"] {
            measure(&format!("{count} workloads"), &problem, policy, 3);
        }
        let rate = problem.workloads().iter().find(|workload| workload.name == "w0001").unwrap().rate;
        let plan = Policy::default().place(&problem).unwrap();
        let problem = problem.from_current(plan);
        for (name, factor) in [("unchanged", 1.0), ("one rate x 0.5", 0.5), ("one rate x 1.5", 1.5)] {
            let problem = problem.clone().with_rate("w0001", factor * rate).unwrap();
            measure(&format!("{count}, {name}"), &problem, "tessera", 10);
        }
    }
    if !wanted("100 workloads", "exact") {
        return;
    }
    let (time, proved) = shortest(1, || Exact::default().prove(&many(100)).unwrap());
    println!(
        "100 workloads            exact        {time:>12.2?} {} devices, at least {}, {} steps, complete: {}",
        proved.cost, proved.cost_least, proved.nodes, proved.complete
    );
}
