//! Learns the weights of the terms of [`Contention`] from finished batches. Recursive least squares forget only in
//! the direction of new observations. The margin follows the size of recent prediction errors. Memory is fixed,
//! whatever is observed.
//!
//! Forgetting is directional (Kulhavý and Kárný, IFAC World Congress 1984): an observation does not change what is
//! known in the directions that it says nothing about. Terms that a device type never shows (cache use without
//! utilisation lines, power without figures) keep their initial weight, and the others continue to learn.

use super::contention::TERMS;
use super::exposure::dot;
use super::fit::{Errors, summary};
use super::learned::FACTOR_MAX;
use super::{Contention, DevicePower, Estimate, Exposure, Load, Runner};

/// Number of predictions whose errors are remembered.
const WINDOW: usize = 256;
/// Weight of an observation relative to the next one in the same direction; half after about 700.
const FORGETTING: f64 = 0.999;
/// Initial variance of the weights, relative to that of an observation. Weights are initially known to about 0.5, and
/// means of some tens of batches to about 0.07.
const VARIANCE: f64 = 50.0;
/// Largest sum of the variances of all weights: the initial one.
const VARIANCE_MAX: f64 = 4.0 * VARIANCE;
/// Observations before the first prediction error is remembered. Earlier errors come from the initial weights.
const SETTLING: u64 = 16;
/// Observations required before the estimate is used for planning.
const ENOUGH: u64 = 32;
/// Largest plausible term.
const TERM_MAX: f64 = 1e3;
/// Least fraction of co-located batches to learn from. Below it, noise dominates.
const SHARE_MIN: f64 = 0.05;
/// Least fraction of co-located batches for a prediction error to be remembered.
const SHARE_TOLD: f64 = 0.2;

/// Weights of one device type, their uncertainty, and recent prediction errors.
#[derive(Clone, Debug, PartialEq)]
pub struct Learner {
    power: DevicePower,
    weights: [f64; TERMS],
    covariance: [[f64; TERMS]; TERMS],
    observations: u64,
    recent: Vec<Recent>,
    next: usize,
    quantile: f64,
    margin: f64,
}

/// Prediction errors of one observation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recent {
    /// Measured divided by predicted factor of co-located batches, minus 1.
    surprise: f64,
    /// Relative errors of the prediction, and of the assumption that co-located batches have no effect.
    error: f64,
    error_of_none: f64,
}

impl Learner {
    /// Starts from the coefficients of the device or of a similar one. The margin covers the quantile `quantile` (0
    /// to 1) of recent prediction errors; it is 0 before the first.
    pub fn new(start: &Contention, quantile: f64) -> Self {
        Self {
            power: start.power,
            weights: start.coefficients,
            covariance: unknown(),
            observations: 0,
            recent: Vec::with_capacity(WINDOW),
            next: 0,
            quantile: if quantile.is_finite() { quantile.clamp(0.0, 1.0) } else { 1.0 },
            margin: 0.0,
        }
    }

    /// Returns the weights of the terms of [`Contention::terms`], each from -10 to 10.
    pub fn weights(&self) -> [f64; TERMS] {
        self.weights
    }

    /// Returns the fraction added to every prediction.
    pub fn margin(&self) -> f64 {
        self.margin
    }

    /// Returns the number of observations learned from.
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// Returns whether there are enough observations to plan with.
    pub fn is_settled(&self) -> bool {
        self.observations >= ENOUGH
    }

    /// Returns the estimate to plan with.
    pub fn estimate(&self) -> Estimate {
        Estimate { power: self.power, weights: self.weights, margin: self.margin }
    }

    /// Returns the errors of the last predictions, at most 256, or `None` before the first. Each prediction was made
    /// before its observation was learned.
    pub fn errors(&self) -> Option<Errors> {
        summary(self.recent.iter().map(|recent| recent.error).collect())
    }

    /// Returns the same errors for the assumption that co-located batches have no effect.
    pub fn errors_of_none(&self) -> Option<Errors> {
        summary(self.recent.iter().map(|recent| recent.error_of_none).collect())
    }

    /// Predicts the factor without the margin.
    pub fn expected(&self, own: &Runner<'_>, co_located: &[Load]) -> f64 {
        self.estimate().expected(own, co_located)
    }

    /// Returns what batches meet while co-located gpulets are busy for a part of the time; see [`Exposure::partly`].
    pub fn exposure(&self, own: &Runner<'_>, co_located: &[(Load, f64)]) -> Exposure {
        Exposure::partly(&self.power, own, co_located)
    }

    /// Learns from a batch that took `factor` times its solo latency with these co-located loads. Ignores factors
    /// that interference does not cause (not finite, below 0.1, above 10), and solo batches.
    pub fn observe(&mut self, own: &Runner<'_>, co_located: &[Load], factor: f64) {
        if !co_located.is_empty() {
            let terms = Contention::terms(&self.power, own, co_located);
            self.observe_mean(&Exposure { terms, share: 1.0 }, factor);
        }
    }

    /// Learns from batches that met `met` on average and took `factor` times their solo latency on average.
    ///
    /// The mean of the factors is linear in the means of the terms, and the factor of a solo batch is 1. Means are
    /// therefore as useful as single batches, and less noisy. Ignores the factors that [`Learner::observe`] ignores,
    /// and batches of which fewer than 1 in 20 were co-located.
    pub fn observe_mean(&mut self, met: &Exposure, factor: f64) {
        let Exposure { terms, share } = met;
        let sound = terms.iter().all(|term| term.abs() <= TERM_MAX) && *share >= SHARE_MIN && *share <= 1.0;
        if !sound || !(1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&factor) {
            return;
        }
        self.observations = self.observations.saturating_add(1);
        self.remember(met, factor);

        let spread = self.covariance.map(|row| dot(&row, terms));
        let known = dot(&spread, terms);
        // Nothing is left to learn in this direction, or rounding removed it.
        if known.is_nan() || known <= f64::EPSILON {
            return;
        }
        let miss = factor - (1.0 - share) - dot(&self.weights, terms);
        for (weight, spread) in self.weights.iter_mut().zip(spread) {
            *weight = (*weight + spread / (1.0 + known) * miss).clamp(-FACTOR_MAX, FACTOR_MAX);
        }
        // Adds the information of the terms and lets older information in their direction fade: one over `known`
        // becomes FORGETTING times (one over `known`, plus 1). Other directions do not change.
        let learned = FORGETTING - (1.0 - FORGETTING) / known;
        let scale = learned / (FORGETTING * (1.0 + known));
        for (row, own) in self.covariance.iter_mut().zip(spread) {
            for (entry, other) in row.iter_mut().zip(spread) {
                *entry -= scale * own * other;
            }
        }
        self.bound();
    }

    /// Keeps the matrix a valid covariance, whatever was observed.
    fn bound(&mut self) {
        let diagonal = || self.covariance.iter().enumerate().filter_map(|(at, row)| row.get(at));
        let sound = diagonal().all(|entry| *entry >= 0.0)
            && self.covariance.iter().flatten().all(|entry| entry.is_finite());
        let trace: f64 = diagonal().sum();
        if !sound {
            self.covariance = unknown();
        } else if trace > VARIANCE_MAX {
            for entry in self.covariance.iter_mut().flatten() {
                *entry *= VARIANCE_MAX / trace;
            }
        }
    }

    fn remember(&mut self, met: &Exposure, factor: f64) {
        if self.observations <= SETTLING || met.share < SHARE_TOLD {
            return;
        }
        let predicted = (dot(&self.weights, &met.terms) / met.share).clamp(1.0, FACTOR_MAX);
        let alone = 1.0 - met.share;
        let recent = Recent {
            surprise: (factor - alone) / met.share / predicted - 1.0,
            error: ((alone + met.share * predicted) / factor - 1.0).abs(),
            error_of_none: (1.0 / factor - 1.0).abs(),
        };
        match self.recent.get_mut(self.next) {
            Some(oldest) => *oldest = recent,
            None => self.recent.push(recent),
        }
        self.next = self.next.saturating_add(1) % WINDOW;
        let mut sorted: Vec<f64> = self.recent.iter().map(|recent| recent.surprise).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let below = sorted.iter().enumerate().take_while(|(rank, _)| {
            let rank = u32::try_from(*rank).unwrap_or(u32::MAX);
            f64::from(rank) < self.quantile * f64::from(u32::try_from(last).unwrap_or(u32::MAX))
        });
        self.margin = sorted.get(below.count().min(last)).copied().unwrap_or(0.0).clamp(0.0, FACTOR_MAX);
    }
}

/// Returns the covariance of unknown weights.
fn unknown() -> [[f64; TERMS]; TERMS] {
    std::array::from_fn(|row| std::array::from_fn(|column| if row == column { VARIANCE } else { 0.0 }))
}
