//! Chooses how the objectives of pipelines are divided, by simulating the ways.

use workload::{Deadlines, Extent, ObjectiveSplit, Workload};

use crate::error::SimError;

/// Ways to choose from: all. Each is the best for some random workloads.
const WAYS: [(ObjectiveSplit, Deadlines); 6] = [
    (ObjectiveSplit::Even, Deadlines::EndToEnd),
    (ObjectiveSplit::Nexus, Deadlines::EndToEnd),
    (ObjectiveSplit::Even, Deadlines::Static),
    (ObjectiveSplit::Nexus, Deadlines::Static),
    (ObjectiveSplit::Even, Deadlines::PerStage),
    (ObjectiveSplit::Nexus, Deadlines::PerStage),
];
/// Simulations of each way. Each has other requests than the run that is planned for.
const TRIALS: u64 = 3;
/// Nanoseconds of the workload that each simulates at most.
const TRIAL: u64 = 60_000_000_000;
/// Added to the seed for each trial.
const OTHER_SEED: u64 = 0x9e37_79b9;

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
    let (mut best, mut refused) = (None, None);
    for way in &WAYS {
        let tried = planned.iter().fold(workload.clone(), |tried, &number| with(&tried, number, way));
        match attainment(&tried, &simulated) {
            Ok(good) if best.as_ref().is_none_or(|(_, most)| good > *most) => best = Some((tried, good)),
            Ok(_) => {}
            // Some divisions leave a stage less time than it needs on any gpulet.
            Err(why @ SimError::Workload(_)) if workload.partition.is_some() => refused = Some(why),
            Err(why) => return Err(why),
        }
    }
    match (best, refused) {
        (Some((best, _)), _) => Ok(best),
        (None, Some(why)) => Err(why),
        (None, None) => Ok(workload.clone()),
    }
}

fn with(workload: &Workload, number: u32, (split, deadlines): &(ObjectiveSplit, Deadlines)) -> Workload {
    let mut changed = workload.clone();
    let model = changed.models.get_mut(number as usize);
    if let Some(pipeline) = model.and_then(|model| model.pipeline.as_mut()) {
        (pipeline.split, pipeline.deadlines) = (split.clone(), *deadlines);
    }
    changed
}

/// The mean share of requests in time.
fn attainment(
    workload: &Workload,
    simulated: impl Fn(&Workload) -> Result<f64, SimError>,
) -> Result<f64, SimError> {
    let short = match workload.extent {
        Extent::Time(time) if time > TRIAL + workload.warmup => workload.lasting(TRIAL + workload.warmup)?,
        _ => workload.clone(),
    };
    let trial = |number: u64| {
        let other = short.with_seed(short.seed.wrapping_add(OTHER_SEED.wrapping_mul(number)));
        simulated(&other)
    };
    let all = (1..=TRIALS).map(trial).sum::<Result<f64, SimError>>()?;
    Ok(all / TRIALS as f64)
}
