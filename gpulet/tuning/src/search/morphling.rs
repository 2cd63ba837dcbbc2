//! Morphling (Wang et al., SoCC 2021): few-shot transfer from other models.
//!
//! The abstract says that a meta-model is trained on other services, adapted to a new one with few samples, and directs the search. The loop is
//! from memory: fixed first samples at informative points, then the configuration with the best predicted objective is tried and the model adapted. The paper's
//! meta-model is a neural network from model-agnostic meta-learning. Here it is the mean surface of the other models, with a Gaussian process for
//! how the new model differs from it: a network does not fit into the few trials that other models have.

use super::bo::near;
use super::others::mean_of;
use super::{Choice, Reason, Search, Settings};
use crate::gaussian_process::Posterior;
use crate::measurement::{Measured, Measurement, Objective};
use crate::space::{KNOBS, Space};

/// Distance over which differences from the surface change, as a share of each knob.
const LENGTH: f64 = 0.5;
/// Deviation of these differences and of trials, as logarithms.
const DEVIATION: f64 = 0.3;
const NOISE: f64 = 0.02;

/// The search.
pub(super) struct Morphling {
    space: Space,
    objective: Objective,
    /// Logarithms of rows per second and 99th percentile that are expected, but for a factor each.
    prior: Vec<(f64, f64)>,
    places: Vec<[f64; KNOBS]>,
    first: Vec<usize>,
}

impl Morphling {
    /// # Errors
    /// Without trials of other models.
    pub fn new(settings: &Settings<'_>) -> Result<Self, String> {
        if settings.others.iter().all(Vec::is_empty) {
            return Err(
                "`morphling` learns from other models: expected --from with files of their trials".to_owned()
            );
        }
        let space = settings.space.clone();
        let logs = |_, one: &Measurement| (one.rows_per_s.ln(), one.p99_us.ln());
        let prior = mean_of(space.len(), settings.others, logs);
        let places = (0..space.len()).map(|index| space.unit_place(index)).collect();
        let first = first_samples(&space);
        Ok(Self { space, objective: settings.objective, prior, places, first })
    }
}

/// The default settings with the smallest and largest batch, the first setup with the middle one, and the last: other lanes, threads and engine.
fn first_samples(space: &Space) -> Vec<usize> {
    let last = space.batches().len().saturating_sub(1);
    let default = space.default_setup().unwrap_or(0);
    let ends =
        [(default, 0), (default, last), (0, last / 2), (space.setups().len().saturating_sub(1), last / 2)];
    ends.into_iter().map(|(setup, batch)| space.at(setup, batch)).collect()
}

impl Search for Morphling {
    fn next(&mut self, measured: &Measured) -> Choice {
        if measured.len() >= self.space.len() {
            return Choice::Stop(Reason::Exhausted);
        }
        if let Some(first) = self.first.iter().find(|index| !measured.contains(**index)) {
            return Choice::Try(*first);
        }
        let known: Vec<(usize, Measurement)> =
            measured.in_order().filter_map(|(index, result)| Some((index, result?))).collect();
        let prior = |index: usize| self.prior.get(index).copied().unwrap_or_default();
        let place = |index: usize| self.places.get(index).copied().unwrap_or_default();
        let differences: Vec<(f64, f64)> = known
            .iter()
            .map(|(index, one)| (one.rows_per_s.ln() - prior(*index).0, one.p99_us.ln() - prior(*index).1))
            .collect();
        let mean = |pick: fn(&(f64, f64)) -> f64| {
            differences.iter().map(pick).sum::<f64>() / differences.len().max(1) as f64
        };
        let means = (mean(|one| one.0), mean(|one| one.1));
        let at = |one: usize| known.get(one).map(|(index, _)| place(*index)).unwrap_or_default();
        let variance = DEVIATION.powi(2);
        let kernel = |one: usize, other: usize| variance * near(&at(one), &at(other), LENGTH);
        let fit = |values: Vec<f64>| Posterior::new(known.len(), kernel, NOISE.powi(2), &values);
        let rate = fit(differences.iter().map(|one| one.0 - means.0).collect());
        let p99 = fit(differences.iter().map(|one| one.1 - means.1).collect());
        let open = (0..self.space.len()).filter(|index| !measured.contains(*index));
        let predicted = open.map(|index| {
            let with: Vec<f64> = known
                .iter()
                .map(|(other, _)| variance * near(&place(index), &place(*other), LENGTH))
                .collect();
            let of = |posterior: &Option<Posterior>| {
                posterior.as_ref().map_or(0.0, |one| one.at(&with, variance).0)
            };
            let rows_per_s = (prior(index).0 + means.0 + of(&rate)).exp();
            let p99_us = (prior(index).1 + means.1 + of(&p99)).exp();
            let worth = self.objective.worth(&Measurement { p99_us, rows_per_s });
            // Where nothing is predicted to meet the objective: what misses it least.
            (index, if worth > 0.0 { worth } else { -p99_us })
        });
        let best = predicted.fold(None, |best: Option<(usize, f64)>, next| match best {
            Some(best) if best.1 >= next.1 => Some(best),
            _ => Some(next),
        });
        best.map_or(Choice::Stop(Reason::Exhausted), |(index, _)| Choice::Try(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Engine;

    #[test]
    fn after_its_first_samples_it_tries_what_was_best_for_another_model() {
        let space = Space::new(2, &[1, 2, 4, 8], &Engine::EACH);
        let peak = 37;
        let trial = |index: usize, scale: f64| Measurement {
            p99_us: 10.0,
            rows_per_s: scale * if index == peak { 3.0 } else { 1.0 + (index % 7) as f64 / 10.0 },
        };
        let others = [(0..space.len()).map(|index| (index, trial(index, 5.0))).collect()];
        let objective = Objective { slo_us: 1_000.0 };
        let settings = Settings { space: &space, objective, seed: 1, others: &others };
        let mut search = Morphling::new(&settings).unwrap();
        let mut measured = Measured::default();
        let mut path = Vec::new();
        while path.last() != Some(&peak) {
            let Choice::Try(index) = search.next(&measured) else { panic!("stopped") };
            measured.add(index, Some(trial(index, 1_000.0)));
            path.push(index);
        }
        assert_eq!(path.len(), first_samples(&space).len() + 1, "{path:?}");
        assert!(Morphling::new(&Settings { others: &[], ..settings }).is_err());
    }
}
