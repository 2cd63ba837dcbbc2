//! Several policies on the same traffic, a few runs at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use workload::Workload;

use crate::error::SimError;
use crate::estimate::Estimate;
use crate::report::Report;
use crate::setup::Setup;
use crate::simulation::Simulation;

/// One policy of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// What it is called.
    pub policy: String,
    /// Good answers a second.
    pub goodput: Estimate,
    /// Good by offered, 0 to 1.
    pub attainment: Estimate,
    /// One for each seed, in their order.
    pub runs: Vec<Report>,
}

/// Every setup with every seed, on at most so many threads; in the order of the setups, whichever run ends first.
/// `progress` is told how many runs have ended, of how many. The first error, by that order, ends the comparison.
pub fn compare(
    workload: &Workload,
    setups: &[Setup],
    seeds: &[u64],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Standing>, SimError> {
    let jobs: Vec<(&Setup, u64)> =
        setups.iter().flat_map(|setup| seeds.iter().map(move |&seed| (setup, seed))).collect();
    let ended = AtomicUsize::new(0);
    let mut runs = abreast(threads, &jobs, |&(setup, seed)| {
        let report = Simulation::new(&workload.with_seed(seed), setup)?.run(&mut |_| {})?;
        progress(ended.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        Ok(report)
    })?
    .into_iter();
    let standings = setups.iter().map(|setup| {
        let runs: Vec<Report> = runs.by_ref().take(seeds.len()).collect();
        let estimate = |of: fn(&Report) -> f64| Estimate::of(&runs.iter().map(of).collect::<Vec<_>>());
        Standing {
            policy: setup.label.clone(),
            goodput: estimate(|run| run.goodput),
            attainment: estimate(|run| run.attainment),
            runs,
        }
    });
    Ok(standings.collect())
}

/// Does all jobs, on at most so many threads; results in the order of the jobs. After the first error no more is
/// begun.
pub fn abreast<J: Sync, T: Send>(
    threads: usize,
    jobs: &[J],
    work: impl Fn(&J) -> Result<T, SimError> + Sync,
) -> Result<Vec<T>, SimError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let take_jobs = || {
        let mut done: Vec<(usize, Result<T, SimError>)> = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { break };
            let result = work(job);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((number, result));
        }
        done
    };
    let mut done: Vec<(usize, Result<T, SimError>)> = std::thread::scope(|scope| {
        let helpers: Vec<_> =
            (1..threads.clamp(1, jobs.len().max(1))).map(|_| scope.spawn(take_jobs)).collect();
        let mut done = take_jobs();
        for helper in helpers {
            match helper.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u32> = (0..50).collect();
        for threads in [0, 1, 4, 100] {
            let squares = abreast(threads, &jobs, |job| Ok(job * job)).unwrap();
            assert!(squares.iter().copied().eq(jobs.iter().map(|job| job * job)), "{threads} threads");
        }
        assert_eq!(abreast(4, &[], |(): &()| Ok(1)), Ok(Vec::new()));
    }
}
