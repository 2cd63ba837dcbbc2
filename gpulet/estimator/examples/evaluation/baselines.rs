//! Simpler ways to predict the times of a model that was never measured.

use estimator::{Network, Place};

use super::data::Measured;

/// A way to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// a + c x operations, with a and c of 0 and more that fit the known models best, for each batch and share.
    Operations,
    /// The times of the known model with the most similar operations, weights and activations.
    Nearest,
    /// The same in proportion to the operations.
    NearestScaled,
    /// The geometric mean of three such models, weighted by the reciprocal of their distance.
    NearestThree,
}

impl Baseline {
    pub const ALL: [Self; 4] = [Self::Operations, Self::Nearest, Self::NearestScaled, Self::NearestThree];

    pub fn name(self) -> &'static str {
        match self {
            Self::Operations => "FLOPs only",
            Self::Nearest => "nearest model",
            Self::NearestScaled => "nearest model, by FLOPs",
            Self::NearestThree => "three nearest models",
        }
    }

    /// Predicted time, microseconds; `None` if no known model was measured there.
    pub fn time_us(self, known: &[&Measured], network: &Network, place: Place) -> Option<f64> {
        let macs = network.total().macs;
        if self == Self::Operations {
            let points: Vec<(f64, f64)> = known
                .iter()
                .filter_map(|model| Some((model.network.total().macs, model.time_us(place)?)))
                .collect();
            return line(&points, macs);
        }
        let mut near: Vec<(f64, f64)> = known
            .iter()
            .filter_map(|model| {
                let scale = if self == Self::NearestScaled { macs / model.network.total().macs } else { 1.0 };
                Some((distance(&model.network, network), scale * model.time_us(place)?))
            })
            .collect();
        near.sort_by(|one, other| one.0.total_cmp(&other.0));
        near.truncate(if self == Self::NearestThree { 3 } else { 1 });
        let weights: f64 = near.iter().map(|(far, _)| 1.0 / far.max(1e-3)).sum();
        let sum: f64 = near.iter().map(|(far, time)| time.ln() / far.max(1e-3)).sum();
        (weights > 0.0).then(|| (sum / weights).exp())
    }
}

/// Distance of the logarithms of operations, weights and activations.
fn distance(one: &Network, other: &Network) -> f64 {
    let (one, other) = (one.total(), other.total());
    let pairs = [
        (one.macs, other.macs),
        (one.weight_bytes, other.weight_bytes),
        (one.activation_bytes, other.activation_bytes),
    ];
    pairs.into_iter().map(|(one, other)| (one.max(1.0) / other.max(1.0)).ln().powi(2)).sum::<f64>().sqrt()
}

/// The value at `at` of the line with the least squares of relative errors, with an intercept and a slope of 0 and more.
fn line(points: &[(f64, f64)], at: f64) -> Option<f64> {
    // Each equation is divided by the value.
    let sums = points.iter().fold([0.0; 5], |[aa, ac, cc, a, c], (x, y)| {
        [aa + 1.0 / (y * y), ac + x / (y * y), cc + x * x / (y * y), a + 1.0 / y, c + x / y]
    });
    let [aa, ac, cc, a, c] = sums;
    let determinant = aa * cc - ac * ac;
    let (intercept, slope) = ((a * cc - c * ac) / determinant, (aa * c - ac * a) / determinant);
    let value = if determinant.abs() < f64::EPSILON * aa * cc || slope < 0.0 {
        a / aa
    } else if intercept < 0.0 {
        c / cc * at
    } else {
        intercept + slope * at
    };
    value.is_finite().then_some(value)
}
