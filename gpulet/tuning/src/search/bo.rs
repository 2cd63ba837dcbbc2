//! Bayesian optimisation as it is usually done: a Gaussian process over the knobs, and expected improvement of the capacity.

use super::{Choice, Reason, Search, Settings};
use crate::gaussian_process::{Posterior, expected_improvement};
use crate::generator::Generator;
use crate::measurement::{Measured, Objective};
use crate::space::{KNOBS, Space};

/// Configurations that are tried at random before the first model.
const FIRST: usize = 5;
/// Distances over which capacity changes, as a share of each knob: the most likely is used.
const LENGTHS: [f64; 4] = [0.15, 0.3, 0.6, 1.2];
/// Variance of noise, as a share of the variance of capacity.
const NOISE: f64 = 1e-3;

/// The search.
pub(super) struct Bo {
    objective: Objective,
    places: Vec<[f64; KNOBS]>,
    first: Vec<usize>,
}

impl Bo {
    pub fn new(settings: &Settings<'_>) -> Self {
        let mut order: Vec<usize> = (0..settings.space.len()).collect();
        Generator::new(settings.seed).shuffle(&mut order);
        order.truncate(FIRST);
        Self { objective: settings.objective, places: places(settings.space), first: order }
    }
}

fn places(space: &Space) -> Vec<[f64; KNOBS]> {
    (0..space.len()).map(|index| space.unit_place(index)).collect()
}

/// Squared exponential kernel of two places.
pub(super) fn near(one: &[f64], other: &[f64], length: f64) -> f64 {
    let distance: f64 = one.iter().zip(other).map(|(one, other)| ((one - other) / length).powi(2)).sum();
    (-0.5 * distance).exp()
}

/// The open point with the highest expected improvement over the best of the known values.
pub(super) fn most_promising<P: AsRef<[f64]>>(
    known: &[(P, f64)],
    open: impl Iterator<Item = (usize, P)>,
) -> Option<usize> {
    let values: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let spread = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
    let scale = if spread > 0.0 { spread.sqrt() } else { 1.0 };
    let values: Vec<f64> = values.iter().map(|value| (value - mean) / scale).collect();
    let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let at = |place: usize| known.get(place).map(|(point, _)| point.as_ref()).unwrap_or_default();
    let posteriors = LENGTHS.iter().filter_map(|length| {
        let kernel = |one: usize, other: usize| near(at(one), at(other), *length);
        Some((*length, Posterior::new(known.len(), kernel, NOISE, &values)?))
    });
    let (length, posterior) =
        posteriors.max_by(|one, other| one.1.log_likelihood().total_cmp(&other.1.log_likelihood()))?;
    let gains = open.map(|(index, point)| {
        let with: Vec<f64> =
            known.iter().map(|(other, _)| near(point.as_ref(), other.as_ref(), length)).collect();
        let (mean, variance) = posterior.at(&with, 1.0);
        (index, expected_improvement(mean, variance, best))
    });
    let most = gains.fold(None, |most: Option<(usize, f64)>, next| match most {
        Some(most) if most.1 >= next.1 => Some(most),
        _ => Some(next),
    });
    most.map(|(index, _)| index)
}

impl Search for Bo {
    fn next(&mut self, measured: &Measured) -> Choice {
        if let Some(first) = self.first.iter().find(|index| !measured.contains(**index)) {
            return Choice::Try(*first);
        }
        let place = |index: usize| self.places.get(index).copied().unwrap_or_default();
        let known: Vec<([f64; KNOBS], f64)> = measured
            .in_order()
            .map(|(index, result)| (place(index), result.map_or(0.0, |one| self.objective.worth(&one))))
            .collect();
        let open = (0..self.places.len()).filter(|index| !measured.contains(*index));
        let next = most_promising(&known, open.map(|index| (index, place(index))));
        next.map_or(Choice::Stop(Reason::Exhausted), Choice::Try)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_promising_is_near_the_best_that_is_known() {
        let known = [([0.0], 1.0), ([0.5], 2.0), ([1.0], 0.0)];
        let open = [[0.4], [0.9]];
        let next = most_promising(&known, open.into_iter().enumerate());
        assert_eq!(next, Some(0));
        assert_eq!(most_promising(&known, std::iter::empty()), None);
    }
}
