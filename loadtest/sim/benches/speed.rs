//! Events and simulated requests a second on one core, and allocations an event in steady state; prints, asserts
//! nothing. `cargo bench -p sim [POLICY ...] [MODELS]`.

#![expect(unsafe_code, reason = "an allocator is unsafe by its signature; this one counts and passes on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use router_core::batch::BatchOptions;
use sim::{Setup, Simulation};
use workload::Workload;

/// Runs of each case.
const RUNS: u32 = 3;

/// Requests of each run.
const REQUESTS: u64 = 2_000_000;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the ones that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A workload of `models` models, each offered `rate` requests per second.
fn workload(models: u32, lanes: u32, rate: f64, requests: u64) -> Workload {
    let text = format!(
        r#"
        name = "{models} models on {lanes} lanes"
        seed = 1
        requests = {requests}
        [lanes]
        count = {lanes}
        [models.m]
        count = {models}
        slo = "25ms"
        profile = {{ alpha = "1.053ms", beta = "5.072ms", max_batch = 64 }}
        rate = {rate}
        "#
    );
    let mut files = |name: &str| Err(format!("no file {name}"));
    Workload::parse(&text, &mut files).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    })
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let done = work();
    (done, start.elapsed())
}

fn measure(policy: &str, workload: &Workload) {
    let run = || {
        let setup = Setup::named(policy, &BatchOptions::default())?;
        // Events and allocations at each report of progress: the second half is steady state.
        let mut seen: Vec<(u64, u64)> = Vec::with_capacity(1 << 16);
        let mut note = |progress: sim::Progress| {
            seen.push((progress.events, ALLOCATIONS.load(Ordering::Relaxed)));
        };
        let report = Simulation::new(workload, &setup)?.run(&mut note)?;
        Ok::<_, sim::SimError>((report, seen))
    };
    let mut best = f64::INFINITY;
    let mut last = None;
    // The fastest of a few runs: whatever else the machine did can only have slowed it down.
    for _ in 0..RUNS {
        let (outcome, took) = timed(run);
        best = best.min(took.as_secs_f64());
        last = Some(outcome.unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(1)
        }));
    }
    let Some((report, seen)) = last else { return };
    let middle = seen.get(seen.len() / 2).copied().unwrap_or_default();
    // The last report may come after the run, when the figures are put together.
    let last = seen.iter().rev().nth(1).copied().unwrap_or(middle);
    let an_event = (last.1 - middle.1) as f64 / (last.0 - middle.0).max(1) as f64;
    println!(
        "{:28} {policy:10} {:6.2} M events/s {:6.2} M requests/s {an_event:8.5} allocations/event  attainment {:.4}  mean batch {:.1}",
        report.workload,
        report.events as f64 / best / 1e6,
        report.requests.offered as f64 / best / 1e6,
        report.attainment,
        report.mean_batch,
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let (numbers, mut policies): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    if policies.is_empty() {
        policies = vec!["deadline".to_owned(), "triton".to_owned()];
    }
    let cases = [(1, 8, 4_000.0), (1, 8, 10_000.0), (10, 8, 300.0), (10, 8, 800.0), (1_000, 10_000, 3_000.0)];
    for policy in &policies {
        for (models, lanes, rate) in cases {
            if numbers.is_empty() || numbers.contains(&models.to_string()) {
                measure(policy, &workload(models, lanes, rate, REQUESTS));
            }
        }
    }
}
