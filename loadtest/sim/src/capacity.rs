//! Searches the capacity of a policy: the highest rate with the required attainment.

use serde::{Deserialize, Serialize};
use workload::Workload;

use crate::bound::lane_time_a_second;
use crate::error::SimError;
use crate::setup::Setup;
use crate::simulation::{Progress, Simulation};

/// The target and the precision of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Required attainment, 0 to 1.
    pub attainment: f64,
    /// Largest relative distance between the result and a rate that failed.
    pub tolerance: f64,
    /// Upper bound on the number of trials.
    pub trials_max: u32,
}

impl Default for Search {
    fn default() -> Self {
        Self { attainment: 0.99, tolerance: 0.01, trials_max: 40 }
    }
}

/// The highest rate with the required attainment, and the trials that found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Offered requests per second; 0 if every rate failed.
    pub rate: f64,
    /// The same as a multiple of the workload's own rate.
    pub scale: f64,
    /// Attainment at that rate, over all seeds.
    pub attainment: f64,
    /// Whether the next higher failed rate is within the tolerance. False if the search ran out of trials.
    pub settled: bool,
    /// All trials, in order.
    pub trials: Vec<Trial>,
}

/// A trial at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Multiple of the workload's own rate.
    pub scale: f64,
    /// Offered requests per second.
    pub rate: f64,
    /// Attainment over the seeds that were run.
    pub attainment: f64,
    /// Whether the attainment was sufficient.
    pub holds: bool,
}

/// Distance below the required attainment at which a trial fails without running further seeds.
const HOPELESS: f64 = 0.05;

/// Step between rates while the capacity is not yet between two of them. It is squared after each rate that holds ...
const STEP: f64 = 1.25;
/// ... up to this.
const STEP_MAX: f64 = 16.0;

/// Searches the highest multiple of the workload's rate at which the attainment over all seeds is sufficient.
/// It assumes that attainment does not rise with the rate. Each run has the length of the workload.
pub fn capacity(
    workload: &Workload,
    setup: &Setup,
    search: &Search,
    seeds: &[u64],
    progress: &mut dyn FnMut(Progress),
) -> Result<Capacity, SimError> {
    search.run(first_scale(workload)?, |scale| attempt(workload, setup, search, seeds, scale, progress))
}

impl Search {
    /// Searches the highest scale that holds, starting at `first`. It steps up, ever further, or down until one scale
    /// holds and a higher one fails, then bisects. After a rate that is far too high, the next one is what was answered
    /// in time, because that is seldom less than the capacity. `attempt` runs one trial.
    pub fn run<E>(
        &self,
        first: f64,
        mut attempt: impl FnMut(f64) -> Result<Trial, E>,
    ) -> Result<Capacity, E> {
        let mut trials: Vec<Trial> = Vec::new();
        let (mut held, mut failed): (Option<Trial>, Option<Trial>) = (None, None);
        let (mut scale, mut step) = (first, STEP);
        let mut settled = false;
        while trials.len() < self.trials_max as usize {
            let trial = attempt(scale)?;
            trials.push(trial);
            if trial.holds {
                held = Some(trial)
            } else {
                failed = Some(trial)
            }
            scale = match (held, failed) {
                (Some(low), Some(high)) if high.scale <= low.scale * (1.0 + self.tolerance) => {
                    settled = true;
                    break;
                }
                (Some(low), Some(high)) if high.scale > low.scale * STEP * STEP => {
                    answered(&high).clamp(low.scale * STEP, high.scale / STEP)
                }
                (Some(low), Some(high)) => (low.scale * high.scale).sqrt(),
                (Some(low), None) => {
                    let next = low.scale * step;
                    step = (step * step).min(STEP_MAX);
                    next
                }
                (None, _) => answered(&trial).clamp(scale / STEP_MAX, scale / STEP),
            };
        }
        let (rate, scale, attainment) =
            held.map_or((0.0, 0.0, 0.0), |trial| (trial.rate, trial.scale, trial.attainment));
        Ok(Capacity { rate, scale, attainment, settled, trials })
    }
}

/// The multiple of the workload's rate that was answered in time.
fn answered(trial: &Trial) -> f64 {
    trial.scale * trial.attainment
}

impl Capacity {
    /// The lowest rate that failed, in requests per second: the capacity is between [`rate`](Self::rate) and this.
    pub fn failed_rate(&self) -> Option<f64> {
        self.trials.iter().filter(|trial| !trial.holds).map(|trial| trial.rate).min_by(f64::total_cmp)
    }
}

/// A little below the rate at which the lanes would be busy with batches of the best size.
fn first_scale(workload: &Workload) -> Result<f64, SimError> {
    let scale = 0.8 * f64::from(workload.lanes.count) / lane_time_a_second(workload)?;
    Ok(if scale.is_finite() && scale > 0.0 { scale } else { 1.0 })
}

fn attempt(
    workload: &Workload,
    setup: &Setup,
    search: &Search,
    seeds: &[u64],
    scale: f64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Trial, SimError> {
    let scaled = workload.scaled(scale)?;
    let (mut good, mut offered, mut rate, mut runs) = (0_u64, 0_u64, 0.0, 0);
    for &seed in seeds {
        let report = Simulation::new(&scaled.with_seed(seed), setup)?.run(progress)?;
        good += report.requests.good;
        offered += report.requests.offered;
        rate += report.offered_rate;
        runs += 1;
        if report.attainment < search.attainment - HOPELESS {
            break;
        }
    }
    let attainment = crate::units::share(good, offered, 1.0);
    Ok(Trial {
        scale,
        rate: rate / f64::from(runs.max(1)),
        attainment,
        holds: attainment >= search.attainment,
    })
}
