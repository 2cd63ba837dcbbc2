//! A Gaussian process over the logarithms of batch and share: what is left of the logarithm of a time after its prior mean.

use crate::cholesky::{Cholesky, dot};

/// Standard deviations, of logarithms of times, that are tried for each part of the kernel.
const DEVIATIONS: [f64; 10] = [0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28];
/// Lengths, of logarithms of batch and share, that are tried.
const LENGTHS: [f64; 4] = [0.35, 0.7, 1.4, 2.8];
/// Passes over all parts of the kernel.
const PASSES: usize = 3;
/// Largest number of points of one surface that the kernel is fitted to.
const FITTED_MAX: usize = 48;

/// A point: logarithms of batch and share.
pub(crate) type Point = (f64, f64);

/// Points and values that belong together, such as what is left of the times of one model.
pub(crate) type Surface = (Vec<Point>, Vec<f64>);

/// Covariance: a level, slopes along both axes, and a smooth bend; with the noise of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kernel {
    level: f64,
    batch_slope: f64,
    share_slope: f64,
    bend: f64,
    batch_length: f64,
    share_length: f64,
    noise: f64,
}

impl Kernel {
    /// For a device of which nothing is known: a level known to a factor of 20, slopes to a third of an exponent.
    pub(crate) const WEAK: Self = Self {
        level: 3.0,
        batch_slope: 0.3,
        share_slope: 0.3,
        bend: 0.1,
        batch_length: 1.4,
        share_length: 0.7,
        noise: 0.02,
    };

    pub(crate) fn covariance(&self, one: Point, other: Point) -> f64 {
        let (batch, share) = ((one.0 - other.0) / self.batch_length, (one.1 - other.1) / self.share_length);
        self.level.powi(2)
            + self.batch_slope.powi(2) * (one.0 - CENTRE.0) * (other.0 - CENTRE.0)
            + self.share_slope.powi(2) * (one.1 - CENTRE.1) * (other.1 - CENTRE.1)
            + self.bend.powi(2) * (-0.5 * (batch * batch + share * share)).exp()
    }

    /// Fits to surfaces with mean 0, one for each known model, by the largest likelihood.
    pub(crate) fn fit(surfaces: &[Surface]) -> Self {
        let thin: Vec<Surface> = surfaces.iter().map(thinned).collect();
        let mut best = Self { level: 0.16, batch_slope: 0.04, share_slope: 0.04, bend: 0.04, ..Self::WEAK };
        let mut likelihood = best.log_likelihood(&thin);
        for _ in 0..PASSES {
            for part in Part::ALL {
                for value in part.values() {
                    let next = part.with(best, *value);
                    let found = next.log_likelihood(&thin);
                    if found > likelihood {
                        (best, likelihood) = (next, found);
                    }
                }
            }
        }
        best
    }

    fn log_likelihood(&self, surfaces: &[Surface]) -> f64 {
        let of = |(points, values): &Surface| {
            let Some(factors) = self.factors(points) else { return f64::NEG_INFINITY };
            let white = factors.forward(values);
            -0.5 * (dot(&white, &white) + factors.log_determinant())
        };
        surfaces.iter().map(of).sum()
    }

    /// Standard deviation without measurements, noise included.
    pub(crate) fn deviation(&self, point: Point) -> f64 {
        (self.covariance(point, point) + self.noise()).sqrt()
    }

    /// Covariances of all pairs of points without measurements.
    pub(crate) fn covariances(&self, points: &[Point]) -> Vec<Vec<f64>> {
        points.iter().map(|one| points.iter().map(|other| self.covariance(*one, *other)).collect()).collect()
    }

    /// Variance of a single measurement.
    pub(crate) fn noise(&self) -> f64 {
        self.noise.powi(2)
    }

    fn factors(&self, points: &[Point]) -> Option<Cholesky> {
        let row = |(at, one): (usize, &Point)| -> Vec<f64> {
            let with = points.iter().take(at + 1).map(|other| self.covariance(*one, *other));
            let mut row: Vec<f64> = with.collect();
            if let Some(own) = row.last_mut() {
                *own += self.noise.powi(2);
            }
            row
        };
        Cholesky::new(&points.iter().enumerate().map(row).collect::<Vec<_>>())
    }
}

/// Where slopes have no effect: a batch of 4 on half of a device.
const CENTRE: Point = (1.386, -0.693);

#[derive(Clone, Copy)]
enum Part {
    Level,
    BatchSlope,
    ShareSlope,
    Bend,
    Noise,
    BatchLength,
    ShareLength,
}

impl Part {
    const ALL: [Self; 7] = [
        Self::Level,
        Self::BatchSlope,
        Self::ShareSlope,
        Self::Bend,
        Self::Noise,
        Self::BatchLength,
        Self::ShareLength,
    ];

    fn values(self) -> &'static [f64] {
        match self {
            Self::BatchLength | Self::ShareLength => &LENGTHS,
            Self::Level | Self::BatchSlope | Self::ShareSlope | Self::Bend | Self::Noise => &DEVIATIONS,
        }
    }

    fn with(self, mut kernel: Kernel, value: f64) -> Kernel {
        let part = match self {
            Self::Level => &mut kernel.level,
            Self::BatchSlope => &mut kernel.batch_slope,
            Self::ShareSlope => &mut kernel.share_slope,
            Self::Bend => &mut kernel.bend,
            Self::Noise => &mut kernel.noise,
            Self::BatchLength => &mut kernel.batch_length,
            Self::ShareLength => &mut kernel.share_length,
        };
        *part = value;
        kernel
    }
}

/// Evenly spaced points of a surface.
fn thinned((points, values): &Surface) -> Surface {
    let step = points.len().div_ceil(FITTED_MAX).max(1);
    points.iter().copied().zip(values.iter().copied()).step_by(step).unzip()
}

/// The process after measurements.
#[derive(Clone, Debug)]
pub(crate) struct Posterior {
    kernel: Kernel,
    points: Vec<Point>,
    factors: Cholesky,
    /// A⁻¹ y, of the covariance A of the measurements and their values y.
    weights: Vec<f64>,
}

impl Posterior {
    /// `None` if the measurements contradict the kernel beyond the accuracy of the arithmetic.
    pub(crate) fn new(kernel: Kernel, (points, values): Surface) -> Option<Self> {
        let factors = kernel.factors(&points)?;
        let weights = factors.solve(&values);
        Some(Self { kernel, points, factors, weights })
    }

    fn covariances(&self, point: Point) -> Vec<f64> {
        self.points.iter().map(|known| self.kernel.covariance(point, *known)).collect()
    }

    pub(crate) fn mean(&self, point: Point) -> f64 {
        dot(&self.covariances(point), &self.weights)
    }

    /// Covariances of all pairs of points.
    pub(crate) fn covariance(&self, points: &[Point]) -> Vec<Vec<f64>> {
        let white: Vec<Vec<f64>> =
            points.iter().map(|point| self.factors.forward(&self.covariances(*point))).collect();
        let row = |(one, left): (&Point, &Vec<f64>)| -> Vec<f64> {
            let with = points.iter().zip(&white);
            with.map(|(other, right)| self.kernel.covariance(*one, *other) - dot(left, right)).collect()
        };
        points.iter().zip(&white).map(row).collect()
    }

    pub(crate) fn variance(&self, point: Point) -> f64 {
        let white = self.factors.forward(&self.covariances(point));
        (self.kernel.covariance(point, point) - dot(&white, &white)).max(0.0)
    }

    /// Variance of a single measurement.
    pub(crate) fn noise(&self) -> f64 {
        self.kernel.noise()
    }
}
