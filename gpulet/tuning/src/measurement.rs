//! What a trial gives, and what it is worth at an objective.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// 99th percentile of the time of a batch, microseconds.
    pub p99_us: f64,
    /// Rows per second of all lanes together.
    pub rows_per_s: f64,
}

impl Measurement {
    /// Whether it can be that of a trial: a file may have anything.
    pub(crate) fn is_sane(&self) -> bool {
        self.p99_us.is_finite() && self.p99_us > 0.0 && self.rows_per_s.is_finite() && self.rows_per_s > 0.0
    }
}

/// Time within which a request must be answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// The time, microseconds.
    pub slo_us: f64,
}

impl Objective {
    /// Rows per second at the objective. A request that just missed a batch waits for that batch and then for its own, so two batches must end
    /// within the objective; `None` if they do not.
    pub fn capacity(&self, measurement: &Measurement) -> Option<f64> {
        (2.0 * measurement.p99_us <= self.slo_us).then_some(measurement.rows_per_s)
    }

    /// As [`capacity`](Self::capacity), with 0 for what misses the objective.
    pub fn worth(&self, measurement: &Measurement) -> f64 {
        self.capacity(measurement).unwrap_or(0.0)
    }
}

/// Trials so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    found: BTreeMap<usize, Option<Measurement>>,
    order: Vec<usize>,
}

impl Measured {
    /// Adds the result of a trial of the configuration with this index; `None`: the configuration does not run. The first result counts.
    pub fn add(&mut self, index: usize, result: Option<Measurement>) {
        if let Entry::Vacant(open) = self.found.entry(index) {
            open.insert(result.filter(Measurement::is_sane));
            self.order.push(index);
        }
    }

    /// The trials in their order.
    pub fn in_order(&self) -> impl Iterator<Item = (usize, Option<Measurement>)> {
        self.order.iter().map(|index| (*index, self.get(*index)))
    }

    /// The result of a configuration, if it was tried and runs.
    pub fn get(&self, index: usize) -> Option<Measurement> {
        self.found.get(&index).copied().flatten()
    }

    /// Whether a configuration was tried.
    pub fn contains(&self, index: usize) -> bool {
        self.found.contains_key(&index)
    }

    /// Number of trials.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nothing was tried.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The configuration with the highest capacity, the first of equals; `None` if none meets the objective.
    pub fn best(&self, objective: Objective) -> Option<(usize, f64)> {
        let able = self.in_order().filter_map(|(index, result)| Some((index, objective.capacity(&result?)?)));
        able.fold(None, |best: Option<(usize, f64)>, next| match best {
            Some(best) if best.1 >= next.1 => Some(best),
            _ => Some(next),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_needs_two_batches_within_the_objective() {
        let objective = Objective { slo_us: 20_000.0 };
        let of = |p99_us| objective.capacity(&Measurement { p99_us, rows_per_s: 7.0 });
        assert_eq!((of(10_000.0), of(10_000.1)), (Some(7.0), None));
        assert_eq!(objective.worth(&Measurement { p99_us: 1e6, rows_per_s: 7.0 }), 0.0);
    }

    #[test]
    fn the_first_result_of_a_configuration_counts_and_the_best_is_the_first_of_equals() {
        let mut measured = Measured::default();
        let result = |rows_per_s| Some(Measurement { p99_us: 1.0, rows_per_s });
        measured.add(4, result(5.0));
        measured.add(4, result(9.0));
        measured.add(2, None);
        measured.add(1, result(5.0));
        measured.add(7, Some(Measurement { p99_us: f64::NAN, rows_per_s: 50.0 }));
        measured.add(8, Some(Measurement { p99_us: 11.0, rows_per_s: 50.0 }));
        assert_eq!(measured.best(Objective { slo_us: 20.0 }), Some((4, 5.0)));
        assert_eq!(measured.len(), 5);
        assert!(measured.contains(2) && measured.get(2).is_none() && !measured.contains(3));
        assert_eq!(measured.in_order().map(|(index, _)| index).collect::<Vec<_>>(), [4, 2, 1, 7, 8]);
    }
}
