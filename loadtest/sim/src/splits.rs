//! Chooses how the objectives of pipelines are divided, by simulating the ways.

use workload::{Deadlines, Extent, ObjectiveSplit, Workload};

use crate::error::SimError;

/// Ways to choose from. InferLine's deadlines of stages are left out: they were the worst in the mean of random workloads.
const WAYS: [(ObjectiveSplit, Deadlines); 4] = [
    (ObjectiveSplit::Even, Deadlines::EndToEnd),
    (ObjectiveSplit::Nexus, Deadlines::EndToEnd),
    (ObjectiveSplit::Even, Deadlines::Static),
    (ObjectiveSplit::Nexus, Deadlines::Static),
];
/// Fewest and most simulations of a way. Each has other requests than the run that is planned for, and the same for all ways.
const TRIALS_MIN: usize = 3;
const TRIALS_MAX: usize = 12;
/// A way is dropped once it is behind the best by more than this many standard errors of their difference.
const CLEARLY: f64 = 2.0;
/// Nanoseconds of the workload that each simulates at most.
const TRIAL: u64 = 60_000_000_000;
/// Added to the seed for each trial.
const OTHER_SEED: u64 = 0x9e37_79b9;

/// A way with the share of requests in time of each trial.
struct Tried {
    workload: Workload,
    in_time: Vec<f64>,
}

/// The workload with the way for these pipelines that answers the most requests in time; `simulated` says which share that is. All have
/// the same way: one for each of them was no better on other requests than those it was chosen with, and once much worse.
///
/// # Errors
/// A trial cannot be simulated, or no way can be planned on the devices.
pub(crate) fn choose(
    workload: &Workload,
    planned: &[u32],
    simulated: impl Fn(&Workload) -> Result<f64, SimError>,
) -> Result<Workload, SimError> {
    let ways = WAYS.iter().map(|way| {
        let workload = planned.iter().fold(workload.clone(), |tried, &number| with(&tried, number, way));
        Tried { workload, in_time: Vec::with_capacity(TRIALS_MAX) }
    });
    let (mut left, mut refused) = (ways.collect::<Vec<Tried>>(), None);
    for trial in 1..=TRIALS_MAX {
        let mut tried = Vec::with_capacity(left.len());
        for mut way in left {
            match simulated(&other_requests(&way.workload, trial)?) {
                Ok(share) => {
                    way.in_time.push(share);
                    tried.push(way);
                }
                // Some divisions leave a stage less time than it needs on any gpulet.
                Err(why @ SimError::Workload(_)) if workload.partition.is_some() => refused = Some(why),
                Err(why) => return Err(why),
            }
        }
        // Ways that are equal in all trials count once: the first of them stays.
        tried.sort_by(|one, other| mean(&other.in_time).total_cmp(&mean(&one.in_time)));
        if trial >= TRIALS_MIN && !tried.is_empty() {
            let best = tried.remove(0);
            tried.retain(|way| !is_clearly_behind(&way.in_time, &best.in_time));
            tried.insert(0, best);
        }
        left = tried;
        if left.len() < 2 {
            break;
        }
    }
    match (left.into_iter().next(), refused) {
        (Some(best), _) => Ok(best.workload),
        (None, Some(why)) => Err(why),
        (None, None) => Ok(workload.clone()),
    }
}

/// Whether a way is behind the best one by more than chance, or equal to it, trial by trial.
fn is_clearly_behind(way: &[f64], best: &[f64]) -> bool {
    let behind: Vec<f64> = best.iter().zip(way).map(|(best, way)| best - way).collect();
    let (mean, count) = (mean(&behind), behind.len() as f64);
    let variance = behind.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    mean >= CLEARLY * (variance / count).sqrt()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / (of.len() as f64).max(1.0)
}

fn with(workload: &Workload, number: u32, (split, deadlines): &(ObjectiveSplit, Deadlines)) -> Workload {
    let mut changed = workload.clone();
    let model = changed.models.get_mut(number as usize);
    if let Some(pipeline) = model.and_then(|model| model.pipeline.as_mut()) {
        (pipeline.split, pipeline.deadlines) = (split.clone(), *deadlines);
    }
    changed
}

/// The workload with the requests of a trial.
fn other_requests(workload: &Workload, trial: usize) -> Result<Workload, SimError> {
    let short = match workload.extent {
        Extent::Time(time) if time > TRIAL + workload.warmup => workload.lasting(TRIAL + workload.warmup)?,
        _ => workload.clone(),
    };
    Ok(short.with_seed(short.seed.wrapping_add(OTHER_SEED.wrapping_mul(trial as u64))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_way_that_is_behind_by_more_than_chance_is_dropped() {
        let best = [0.90, 0.80, 0.85];
        assert!(is_clearly_behind(&[0.88, 0.78, 0.83], &best), "always by as much");
        assert!(!is_clearly_behind(&[0.92, 0.75, 0.84], &best), "ahead in one trial");
        assert!(is_clearly_behind(&best, &best), "equal ways count once");
    }
}
