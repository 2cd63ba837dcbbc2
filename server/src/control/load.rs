//! What the models' load was since the last look.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpulet_core::scaling::ModelObservation;
use router_core::{ModelId, Snapshot};

use crate::catalog::{Counts, Loaded};

/// Counts at the last look, by model number: a version that was loaded anew starts from nothing.
#[derive(Debug, Default)]
pub struct LoadWatch {
    before: BTreeMap<u32, Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    counts: Counts,
    unfinished: u64,
}

impl LoadWatch {
    /// What happened to each model since the last look, in their order. `capacity` is what the plan serves of each,
    /// rows a second.
    pub fn look(
        &mut self,
        models: &[Arc<Loaded>],
        snapshot: &Snapshot,
        capacity: &BTreeMap<String, f64>,
    ) -> Vec<ModelObservation> {
        let mut now = BTreeMap::new();
        let observed = models.iter().map(|loaded| {
            let (queued, in_flight) = waiting(snapshot, loaded.id);
            let seen = Seen { counts: loaded.statistics.counts(), unfinished: queued + in_flight };
            let waiting = u64::from(loaded.place.waiting());
            let before = self.before.get(&loaded.id.0).copied().unwrap_or_default();
            now.insert(loaded.id.0, seen);
            let capacity = capacity.get(&loaded.name).copied().unwrap_or(0.0);
            let observed = observation(before, seen, queued, capacity);
            ModelObservation {
                arrivals: observed.arrivals + waiting,
                queued: observed.queued + waiting,
                ..observed
            }
        });
        let observed = observed.collect();
        self.before = now;
        observed
    }
}

fn waiting(snapshot: &Snapshot, id: ModelId) -> (u64, u64) {
    let found = snapshot.models.iter().find(|model| model.model == id);
    found.map_or((0, 0), |model| (model.queued, u64::from(model.in_flight)))
}

fn observation(before: Seen, now: Seen, queued: u64, capacity: f64) -> ModelObservation {
    let since = |of: fn(&Counts) -> u64| of(&now.counts).saturating_sub(of(&before.counts));
    let (rows, answered) = (since(|counts| counts.rows), since(|counts| counts.answered));
    let (late, failed) = (since(|counts| counts.late), since(|counts| counts.failed));
    // Who left the queue arrived earlier, who joined it has not ended yet.
    let arrivals = (rows + failed + now.unfinished).saturating_sub(before.unfinished);
    let ended = answered + failed;
    let good = answered.saturating_sub(late);
    let attainment = (ended > 0).then(|| good as f64 / ended as f64);
    ModelObservation { arrivals, queued, refused: failed, attainment, capacity }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rows: u64, answered: u64, late: u64, failed: u64, unfinished: u64) -> Seen {
        Seen { counts: Counts { rows, answered, late, failed }, unfinished }
    }

    #[test]
    fn arrivals_are_those_that_ended_and_those_that_joined_the_queue() {
        let before = seen(100, 100, 0, 10, 5);
        let observed = observation(before, seen(140, 140, 4, 20, 15), 12, 300.0);
        assert_eq!((observed.arrivals, observed.refused, observed.queued), (60, 10, 12));
        assert_eq!((observed.attainment, observed.capacity), (Some(36.0 / 50.0), 300.0));
    }

    #[test]
    fn a_queue_that_empties_is_no_arrival_and_silence_has_no_attainment() {
        let before = seen(100, 100, 0, 0, 30);
        assert_eq!(observation(before, seen(130, 130, 0, 0, 0), 0, 1.0).arrivals, 0);
        let silent = observation(before, before, 30, 1.0);
        assert_eq!((silent.arrivals, silent.attainment), (0, None));
    }
}
