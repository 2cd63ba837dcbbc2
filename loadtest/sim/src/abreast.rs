//! Runs several jobs in parallel.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::SimError;

/// Runs all jobs on at most `threads` threads and returns the results in the order of the jobs. No job starts after the
/// first error.
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
