//! Runs jobs under Salus in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::{Effect, Event, Job, LANES_GAIN, Order, Salus};
use crate::figures::percentile;

/// What a run measured, in minutes from the arrival of a job to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Completion {
    /// Jobs that ended.
    pub jobs: usize,
    /// Mean time to completion, in minutes: the figure that the paper gives.
    pub mean_min: f64,
    /// Median time to completion, in minutes.
    pub p50_min: f64,
    /// 99th percentile of the time to completion, in minutes.
    pub p99_min: f64,
    /// Time from the first arrival to the last end, in minutes.
    pub makespan_min: f64,
    /// Most memory that was taken, in MB.
    pub memory_mb_max: f64,
}

/// An event at a time in nanoseconds, with a number that orders events of the same time.
type Due = (u64, u64, usize, bool);

/// Runs jobs until all have ended.
///
/// # Errors
/// The first job that does not fit into the memory alone.
pub fn run(jobs: &[Job], order: Order, memory_mb: f64) -> Result<Completion, String> {
    if let Some(job) = jobs.iter().find(|job| job.persistent_mb + job.ephemeral_mb > memory_mb) {
        let needed = job.persistent_mb + job.ephemeral_mb;
        return Err(format!(
            "job `{}`: expected at most {memory_mb} MB of memory, got {needed:.1} MB",
            job.name
        ));
    }
    let mut salus = Salus::new(order, jobs.to_vec(), memory_mb);
    let arrivals =
        jobs.iter().enumerate().map(|(job, spec)| Reverse(((spec.arrives * 1e9) as u64, 0, job, true)));
    let mut due: BinaryHeap<Reverse<Due>> = arrivals.collect();
    let mut effects = Vec::new();
    let mut times_ns = Vec::new();
    let (mut number, mut memory_mb_max, mut end) = (0, 0.0_f64, 0);
    while let Some(Reverse((now, _, index, arrived))) = due.pop() {
        end = now;
        salus
            .handle(if arrived { Event::Arrived(index) } else { Event::IterationEnded(index) }, &mut effects);
        memory_mb_max = memory_mb_max.max(salus.lanes().used_mb());
        let lanes = salus.busy().max(1) as f64;
        let stretch = if lanes > 1.0 { lanes / LANES_GAIN } else { 1.0 };
        for effect in effects.drain(..) {
            match effect {
                Effect::Run { lane, job } => {
                    let seconds = jobs.get(job).map_or(0.0, Job::iteration_seconds) * stretch;
                    number += 1;
                    due.push(Reverse((now + ((seconds * 1e9) as u64).max(1), number, lane, false)));
                }
                Effect::Done(job) => {
                    let arrived = jobs.get(job).map_or(0, |job| (job.arrives * 1e9) as u64);
                    times_ns.push(now - arrived);
                }
            }
        }
    }
    times_ns.sort_unstable();
    let minutes = |ns: u64| ns as f64 / 60e9;
    Ok(Completion {
        jobs: times_ns.len(),
        mean_min: times_ns.iter().map(|ns| minutes(*ns)).sum::<f64>() / times_ns.len().max(1) as f64,
        p50_min: minutes(percentile(&times_ns, 0.5)),
        p99_min: minutes(percentile(&times_ns, 0.99)),
        makespan_min: minutes(end - jobs.iter().map(|job| (job.arrives * 1e9) as u64).min().unwrap_or(0)),
        memory_mb_max,
    })
}
