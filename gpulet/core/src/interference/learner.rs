//! Learns the weights of the terms of [`Contention`] from the batches that ran: recursive least squares that forget
//! only where they are told something new, and the size of its recent surprises as margin. Memory is fixed, whatever is
//! observed.
//!
//! Forgetting is directional (Kulhavý and Kárný, IFAC World Congress 1984): what an observation says nothing about is
//! known as well after it as before. So terms that a device type never shows (cache use without utilisation lines,
//! power without figures) keep the weight that they began with, and the others go on learning.

use super::contention::TERMS;
use super::exposure::dot;
use super::fit::{Errors, summary};
use super::{Contention, DevicePower, Estimate, Exposure, Load, Runner};

/// Surprises and errors that are remembered.
const WINDOW: usize = 256;
/// How much an observation weighs after the next one of its kind; half after about 700.
const FORGETTING: f64 = 0.999;
/// Variance of the weights at the start, over that of an observation: weights are known to about 0.5, means of some tens of
/// batches to about 0.07.
const VARIANCE: f64 = 50.0;
/// Sum of the variances of all weights at most: not less known than at the start.
const VARIANCE_MAX: f64 = 4.0 * VARIANCE;
/// Observations before the first surprise is remembered: until then it is the start that surprises.
const SETTLING: u64 = 16;
/// Observations from which on there is something to plan with.
const ENOUGH: u64 = 32;
/// Factors beyond this, or below one over it, are hiccups of the machine and not interference, and weights beyond it are none.
pub(super) const FACTOR_MAX: f64 = 10.0;
/// Terms beyond this are no loads.
const TERM_MAX: f64 = 1e3;
/// Part of the batches that must have had a neighbour beside them: what is learned of fewer is mostly noise.
const SHARE_MIN: f64 = 0.05;
/// The same for what is remembered as a surprise.
const SHARE_TOLD: f64 = 0.2;

/// Weights, what is known about them, and recent surprises. Belongs to one device type.
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

/// How far predictions were from one observation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recent {
    /// Measured over predicted of batches with a neighbour beside them, minus 1.
    surprise: f64,
    /// Relative error of the prediction, and of the one that neighbours change nothing.
    error: f64,
    error_of_none: f64,
}

impl Learner {
    /// Starts from what is known of the device, or of a similar one. The margin covers `quantile` (0 to 1) of recent
    /// surprises; it is 0 until there are some.
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

    /// Weights of the terms of [`Contention::terms`]; each from -10 to 10.
    pub fn weights(&self) -> [f64; TERMS] {
        self.weights
    }

    /// Part added to every prediction.
    pub fn margin(&self) -> f64 {
        self.margin
    }

    /// Observations that were learned from.
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// Whether there were enough observations to plan with what they say.
    pub fn is_settled(&self) -> bool {
        self.observations >= ENOUGH
    }

    /// What is planned with.
    pub fn estimate(&self) -> Estimate {
        Estimate { power: self.power, weights: self.weights, margin: self.margin }
    }

    /// Errors of the last predictions, at most 256, each made before what it is held against was learned from; none
    /// before the first.
    pub fn errors(&self) -> Option<Errors> {
        summary(self.recent.iter().map(|recent| recent.error).collect())
    }

    /// The same of predictions that neighbours change nothing.
    pub fn errors_of_none(&self) -> Option<Errors> {
        summary(self.recent.iter().map(|recent| recent.error_of_none).collect())
    }

    /// Prediction without the margin.
    pub fn expected(&self, own: &Runner<'_>, beside: &[Load]) -> f64 {
        self.estimate().expected(own, beside)
    }

    /// What batches meet beside neighbours that are busy for a part of the time, see [`Exposure::partly`].
    pub fn exposure(&self, own: &Runner<'_>, neighbours: &[(Load, f64)]) -> Exposure {
        Exposure::partly(&self.power, own, neighbours)
    }

    /// A batch that ran beside these loads took `factor` times its latency alone. Factors that no neighbour causes
    /// (not finite, below 0.1, above 10) are not learned from, and neither are batches that ran alone.
    pub fn observe(&mut self, own: &Runner<'_>, beside: &[Load], factor: f64) {
        if !beside.is_empty() {
            let terms = Contention::terms(&self.power, own, beside);
            self.observe_mean(&Exposure { terms, share: 1.0 }, factor);
        }
    }

    /// Batches that met this on average took `factor` times their latency alone on average.
    ///
    /// The mean of the factors is linear in the means of the terms, and those of batches alone are 1, so means are as good
    /// to learn from as single batches, and less noisy. Not learned from: factors as of [`Learner::observe`], and batches
    /// of which fewer than 1 in 20 had a neighbour.
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
        // Nothing is left to learn in that direction, or rounding ate it up.
        if known.is_nan() || known <= f64::EPSILON {
            return;
        }
        let miss = factor - (1.0 - share) - dot(&self.weights, terms);
        for (weight, spread) in self.weights.iter_mut().zip(spread) {
            *weight = (*weight + spread / (1.0 + known) * miss).clamp(-FACTOR_MAX, FACTOR_MAX);
        }
        // Takes in the information of the terms and lets that in their direction fade, so that one over `known` becomes
        // FORGETTING times (one over `known`, plus 1); other directions stay as they are.
        let learned = FORGETTING - (1.0 - FORGETTING) / known;
        let scale = learned / (FORGETTING * (1.0 + known));
        for (row, own) in self.covariance.iter_mut().zip(spread) {
            for (entry, other) in row.iter_mut().zip(spread) {
                *entry -= scale * own * other;
            }
        }
        self.bound();
    }

    /// Keeps the covariance one, whatever was observed.
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

/// The covariance of weights of which nothing is known.
fn unknown() -> [[f64; TERMS]; TERMS] {
    let mut covariance = [[0.0; TERMS]; TERMS];
    for (at, row) in covariance.iter_mut().enumerate() {
        if let Some(entry) = row.get_mut(at) {
            *entry = VARIANCE;
        }
    }
    covariance
}
