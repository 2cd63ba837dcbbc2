//! What a request costs at least, by type of device.

use gpulet_core::interference::Runner;
use gpulet_core::problem::{DeviceType, Problem, Workload};

use crate::question::Question;

/// Most times that are looked up in profiles.
const LOOKUPS_MAX: usize = 20_000_000;
/// Relative tolerance for sums of floating-point numbers.
const SLACK: f64 = 1e-9;

/// Calls `found` for each batch on each share of a device that answers within `slo_us`: with the microseconds of the batch, and the
/// seconds of a whole device that a request takes. In every plan, a request that just misses a batch waits for that batch and its own,
/// so a batch may take at most half the objective. `false` after too many lookups.
pub fn each_batch(
    problem: &Problem,
    (workload, slo_us): (&Workload, f64),
    kind: &DeviceType,
    lookups: &mut usize,
    mut found: impl FnMut(f64, f64),
) -> bool {
    let Some(profile) = problem.profile(workload, kind) else { return true };
    let batch_max = workload.batch_max.min(profile.batches().1);
    for units in &kind.sizes {
        let share = f64::from(*units) / f64::from(kind.units);
        for batch in 1..=batch_max {
            *lookups = lookups.saturating_add(1);
            if *lookups > LOOKUPS_MAX {
                return false;
            }
            let Ok(time) = problem.solo_us(profile, batch, *units) else { continue };
            let runner = Runner { profile, batch, units: *units };
            let time = time * problem.interference().slowdown(&runner, &[]);
            if 2.0 * time > slo_us * (1.0 + SLACK) {
                break;
            }
            // The input of a batch may be copied while the previous batch runs.
            let busy = time - profile.load_us(batch);
            found(time, share * busy / (1e6 * f64::from(batch)));
        }
    }
    true
}

/// The fewest seconds of a whole device that a request of an entry takes, by group of devices; `None` where it cannot be answered in
/// time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work {
    seconds: Vec<Vec<Option<f64>>>,
}

impl Work {
    /// `None` after too many lookups.
    pub(crate) fn of(question: &Question) -> Option<Self> {
        let mut lookups = 0;
        let mut seconds = Vec::new();
        for entry in question.entries() {
            let mut own = Vec::new();
            for group in question.groups() {
                let mut least = f64::INFINITY;
                let batches = (entry, entry.slo_us);
                let problem = question.problem();
                let complete =
                    each_batch(problem, batches, &group.device_type, &mut lookups, |_, seconds| {
                        least = least.min(seconds);
                    });
                if !complete {
                    return None;
                }
                own.push(least.is_finite().then_some(least));
            }
            seconds.push(own);
        }
        Some(Self { seconds })
    }

    /// Seconds of a device of a group that a request of an entry takes at least.
    pub(crate) fn seconds(&self, entry: usize, group: usize) -> Option<f64> {
        self.seconds.get(entry).and_then(|groups| groups.get(group)).copied().flatten()
    }
}
