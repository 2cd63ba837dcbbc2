//! Networks that use a device alike have alike errors of the operator model: the idea of Sniper (DAC 2022), with a distance between mixes
//! of operators where it learns one.

use crate::gaussian_process::{Point, Surface};
use crate::known::{Known, Place};
use crate::operator_model::OperatorModel;

/// Width, in logarithms of batch and share, over which errors of one model are averaged.
const SMOOTHING: f64 = 0.25;

/// Distance up to which networks count as related: about a tenth of the time goes to other work.
pub(crate) const RELATED: f64 = 0.1;

/// How much errors of other models count. The one with the least error on models left out is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trust {
    /// Distance of mixes over which the weight of a model falls.
    width: f64,
    /// Weight of "no error", in comparison with a known model without distance.
    doubt: f64,
}

impl Trust {
    /// All that are tried.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [0.05, 0.1, 0.2, 0.4]
            .into_iter()
            .flat_map(|width| [0.1, 0.3, 1.0, 1e6].map(|doubt| Self { width, doubt }))
    }
}

/// Errors of the operator model on known models.
#[derive(Clone, Debug)]
pub(crate) struct Similarity {
    /// Mix and errors of each known model.
    known: Vec<(Vec<f64>, Surface)>,
}

/// Distance of two mixes: 0 if the shares of time of all terms are the same.
pub(crate) fn distance(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
}

/// The error of a known model around a point.
fn around(surface: &Surface, (batch, share): Point) -> Option<f64> {
    let far = |point: &Point| (point.0 - batch).powi(2) + (point.1 - share).powi(2);
    let nearest = surface.0.iter().map(far).fold(f64::INFINITY, f64::min);
    let (mut sum, mut weights) = (0.0, 0.0);
    for (point, value) in surface.0.iter().zip(&surface.1) {
        let weight = (-0.5 * (far(point) - nearest) / SMOOTHING.powi(2)).exp();
        sum += weight * value;
        weights += weight;
    }
    (weights > 0.0).then(|| sum / weights)
}

impl Similarity {
    /// The errors of a fitted model on those that it was fitted to.
    pub(crate) fn of(model: &OperatorModel, known: &[&Known]) -> Self {
        let of = |known: &&Known| {
            let points = known.timings.iter().map(|timing| timing.place.logs());
            let errors = known.timings.iter().map(|timing| model.log_error(&known.network, timing));
            (model.mix(&known.network), (points.collect(), errors.collect()))
        };
        Self { known: known.iter().map(of).collect() }
    }

    /// The expected error of the operator model, as a logarithm, on a network with this mix.
    pub(crate) fn expected(&self, trust: Trust, mix: &[f64], place: Place) -> f64 {
        let (mut sum, mut weights) = (0.0, trust.doubt);
        for (other, surface) in &self.known {
            let Some(value) = around(surface, place.logs()) else { continue };
            let weight = (-0.5 * (distance(mix, other) / trust.width).powi(2)).exp();
            sum += weight * value;
            weights += weight;
        }
        sum / weights
    }

    /// Distance of the known model that is most similar to a mix.
    pub(crate) fn nearest(&self, mix: &[f64]) -> f64 {
        self.known.iter().map(|(other, _)| distance(mix, other)).fold(f64::INFINITY, f64::min)
    }
}
