//! Gaussian processes over configurations, with any kernel.

use estimator::Cholesky;

/// What measurements say: values of a function at some points, with noise.
pub(crate) struct Posterior {
    factors: Cholesky,
    weights: Vec<f64>,
    log_likelihood: f64,
}

impl Posterior {
    /// `values` are differences from the mean that is expected without measurements. `None` if the kernel is not positive definite.
    pub fn new(
        count: usize,
        kernel: impl Fn(usize, usize) -> f64,
        noise: f64,
        values: &[f64],
    ) -> Option<Self> {
        let row = |one: usize| -> Vec<f64> {
            (0..=one).map(|other| kernel(one, other) + if one == other { noise } else { 0.0 }).collect()
        };
        let matrix: Vec<Vec<f64>> = (0..count).map(row).collect();
        let factors = Cholesky::new(&matrix)?;
        let weights = factors.solve(values);
        let fit: f64 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
        let log_likelihood = -0.5 * (fit + factors.log_determinant());
        Some(Self { factors, weights, log_likelihood })
    }

    /// Mean and variance of the function at a point with these covariances to the measured points, and this variance without them.
    pub fn at(&self, with: &[f64], variance: f64) -> (f64, f64) {
        let mean = self.weights.iter().zip(with).map(|(weight, with)| weight * with).sum();
        let known: f64 = self.factors.forward(with).iter().map(|one| one * one).sum();
        (mean, (variance - known).max(0.0))
    }

    /// Logarithm of the likelihood of the values, but for a constant.
    pub fn log_likelihood(&self) -> f64 {
        self.log_likelihood
    }
}

/// Distribution function of the standard normal distribution (Abramowitz and Stegun, 26.2.17; error below 1e-7).
pub(crate) fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let above = density(z) * sum;
    if z >= 0.0 { 1.0 - above } else { above }
}

/// Density of the standard normal distribution.
pub(crate) fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// How much a normal value is expected to exceed `best`.
pub(crate) fn expected_improvement(mean: f64, variance: f64, best: f64) -> f64 {
    let deviation = variance.sqrt();
    if deviation <= 1e-12 {
        return (mean - best).max(0.0);
    }
    let z = (mean - best) / deviation;
    deviation * (z * normal(z) + density(z))
}

/// How much the exponential of a normal value is expected to exceed `best`, as a share of it.
pub(crate) fn expected_relative_gain(mean: f64, variance: f64, best: f64) -> f64 {
    let (deviation, over) = (variance.sqrt(), mean - best.ln());
    if deviation <= 1e-12 {
        return (over.exp() - 1.0).max(0.0);
    }
    let above = (over + variance) / deviation;
    ((over + variance / 2.0).exp() * normal(above) - normal(over / deviation)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_posterior_keeps_what_was_measured_and_knows_little_far_from_it() {
        let points: [f64; 3] = [0.0, 1.0, 2.0];
        let kernel = |one: f64, other: f64| (-(one - other).powi(2)).exp();
        let posterior =
            Posterior::new(3, |one, other| kernel(points[one], points[other]), 1e-9, &[1.0, -1.0, 0.5])
                .unwrap();
        let at = |x: f64| posterior.at(&points.map(|point| kernel(x, point)), 1.0);
        let (mean, variance) = at(1.0);
        assert!((mean + 1.0).abs() < 1e-6 && variance < 1e-6, "{mean} {variance}");
        let (mean, variance) = at(50.0);
        assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-6);
        assert!(posterior.log_likelihood().is_finite());
        assert!(Posterior::new(2, |_, _| 1.0, 0.0, &[1.0, 1.0]).is_none(), "two equal points without noise");
    }

    #[test]
    fn the_normal_distribution_has_its_known_values() {
        for (z, wanted) in [(0.0, 0.5), (1.0, 0.841_344_746), (-1.96, 0.024_997_895), (5.0, 0.999_999_713)] {
            assert!((normal(z) - wanted).abs() < 2e-7, "{z}: {}", normal(z));
        }
    }

    #[test]
    fn an_improvement_is_expected_from_what_is_better_or_unknown() {
        assert_eq!(expected_improvement(3.0, 0.0, 2.0), 1.0);
        assert_eq!(expected_improvement(1.0, 0.0, 2.0), 0.0);
        assert!((expected_improvement(2.0, 1.0, 2.0) - density(0.0)).abs() < 1e-7);
        assert!((expected_relative_gain(2.0_f64.ln(), 0.0, 1.0) - 1.0).abs() < 1e-9);
        assert_eq!(expected_relative_gain(0.0, 0.0, 2.0), 0.0);
        assert!(expected_relative_gain(0.0, 0.04, 1.0) > expected_relative_gain(0.0, 0.01, 1.0));
    }
}
