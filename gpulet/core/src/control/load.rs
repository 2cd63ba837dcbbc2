//! The load of each model since the last evaluation.

use std::collections::BTreeMap;

use super::{Counts, ModelCounts, ModelLoad};
use crate::id::ModelId;
use crate::scaling::ModelObservation;

/// Counts at the last evaluation, by model number.
#[derive(Debug, Default)]
pub(super) struct LoadWatch {
    before: BTreeMap<ModelId, ModelCounts>,
}

impl LoadWatch {
    /// What happened to each model since the last evaluation, in their order. `capacity` is what the plan serves of
    /// each, requests a second.
    pub fn look(&mut self, models: &[ModelLoad], capacity: &BTreeMap<String, f64>) -> Vec<ModelObservation> {
        let mut now = BTreeMap::new();
        let observed = models.iter().map(|ModelLoad { model, seen }| {
            let before = self.before.get(&seen.number).copied().unwrap_or_default();
            now.insert(seen.number, *seen);
            let capacity = capacity.get(&model.name).copied().unwrap_or(0.0);
            let observed = observation(before, *seen, capacity);
            ModelObservation {
                arrivals: observed.arrivals.saturating_add(seen.waiting),
                queued: observed.queued.saturating_add(seen.waiting),
                ..observed
            }
        });
        let observed = observed.collect();
        self.before = now;
        observed
    }
}

fn observation(before: ModelCounts, now: ModelCounts, capacity: f64) -> ModelObservation {
    let since = |of: fn(&Counts) -> u64| of(&now.counts).saturating_sub(of(&before.counts));
    let (rows, answered) = (since(|counts| counts.rows), since(|counts| counts.answered));
    let (late, failed) = (since(|counts| counts.late), since(|counts| counts.failed));
    // Who left the queue arrived earlier, who joined it has not ended yet.
    let ended_or_waits = rows.saturating_add(failed).saturating_add(now.unfinished());
    let arrivals = ended_or_waits.saturating_sub(before.unfinished());
    let ended = answered.saturating_add(failed);
    let good = answered.saturating_sub(late);
    let attainment = (ended > 0).then(|| good as f64 / ended as f64);
    ModelObservation { arrivals, queued: now.queued, refused: failed, attainment, capacity }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rows: u64, answered: u64, late: u64, failed: u64, in_flight: u64) -> ModelCounts {
        ModelCounts { counts: Counts { rows, answered, late, failed }, in_flight, ..ModelCounts::default() }
    }

    #[test]
    fn arrivals_are_those_that_ended_and_those_that_joined_the_queue() {
        let before = seen(100, 100, 0, 10, 5);
        let observed = observation(before, ModelCounts { queued: 12, ..seen(140, 140, 4, 20, 3) }, 300.0);
        assert_eq!((observed.arrivals, observed.refused, observed.queued), (60, 10, 12));
        assert_eq!((observed.attainment, observed.capacity), (Some(36.0 / 50.0), 300.0));
    }

    #[test]
    fn a_shrinking_queue_does_not_count_as_arrivals_and_silence_has_no_attainment() {
        let before = seen(100, 100, 0, 0, 30);
        assert_eq!(observation(before, seen(130, 130, 0, 0, 0), 1.0).arrivals, 0);
        let silent = observation(before, before, 1.0);
        assert_eq!((silent.arrivals, silent.attainment), (0, None));
    }
}
