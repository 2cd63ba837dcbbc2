//! The terms of [`Contention`] with weights learned from the batches that ran: recursive least squares with slow
//! forgetting, and the size of its recent surprises as margin. Memory is fixed, whatever is observed.

use super::contention::TERMS;
use super::{Contention, DevicePower, Load, Runner, Slowdown};
use crate::profile::Profile;

/// Surprises that are remembered.
const WINDOW: usize = 256;
/// How much an observation weighs after the next one; half after about 700.
const FORGETTING: f64 = 0.999;
/// Variance of the weights at the start, in squares of their unit.
const VARIANCE: f64 = 0.1;
/// Sum of the variances of all weights at most; keeps quiet times from winding the filter up.
const VARIANCE_MAX: f64 = 10.0;
/// Factors beyond this are hiccups of the machine and not interference.
const FACTOR_MAX: f64 = 10.0;

/// Weights, what is known about them, and recent surprises. Belongs to one kind of device.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    power: DevicePower,
    weights: [f64; TERMS],
    covariance: [[f64; TERMS]; TERMS],
    /// Measured over predicted, minus 1.
    surprises: Vec<f64>,
    next: usize,
    quantile: f64,
    margin: f64,
}

impl Learned {
    /// Starts from what is known of the device, or of a similar one. The margin covers `quantile` (0 to 1) of recent
    /// surprises; it is 0 until there are some.
    pub fn new(start: &Contention, quantile: f64) -> Self {
        let mut covariance = [[0.0; TERMS]; TERMS];
        for (at, row) in covariance.iter_mut().enumerate() {
            if let Some(entry) = row.get_mut(at) {
                *entry = VARIANCE;
            }
        }
        Self {
            power: start.power,
            weights: start.coefficients,
            covariance,
            surprises: Vec::with_capacity(WINDOW),
            next: 0,
            quantile: if quantile.is_finite() { quantile.clamp(0.0, 1.0) } else { 1.0 },
            margin: 0.0,
        }
    }

    /// Weights of the terms of [`Contention::terms`].
    pub fn weights(&self) -> [f64; TERMS] {
        self.weights
    }

    /// Part added to every prediction.
    pub fn margin(&self) -> f64 {
        self.margin
    }

    /// Prediction without the margin.
    pub fn expected(&self, own: &Runner<'_>, beside: &[Load]) -> f64 {
        if beside.is_empty() {
            return 1.0;
        }
        dot(&self.weights, &Contention::terms(&self.power, own, beside))
    }

    /// A batch that ran beside these loads took `factor` times its latency alone. Factors that no neighbour causes
    /// (not finite, at most 0, above 10) are not learned from, and neither are batches that ran alone.
    pub fn observe(&mut self, own: &Runner<'_>, beside: &[Load], factor: f64) {
        if beside.is_empty() || !(factor > 0.0 && factor <= FACTOR_MAX) {
            return;
        }
        let terms = Contention::terms(&self.power, own, beside);
        let expected = dot(&self.weights, &terms);
        self.remember(factor / expected.max(1.0) - 1.0);

        let spread = self.covariance.map(|row| dot(&row, &terms));
        let total = FORGETTING + dot(&spread, &terms);
        for (weight, spread) in self.weights.iter_mut().zip(spread) {
            *weight += spread / total * (factor - expected);
        }
        for (row, own) in self.covariance.iter_mut().zip(spread) {
            for (entry, other) in row.iter_mut().zip(spread) {
                *entry = (*entry - own * other / total) / FORGETTING;
            }
        }
        let trace: f64 = self.covariance.iter().enumerate().filter_map(|(at, row)| row.get(at)).sum();
        if trace > VARIANCE_MAX {
            for entry in self.covariance.iter_mut().flatten() {
                *entry *= VARIANCE_MAX / trace;
            }
        }
    }

    fn remember(&mut self, surprise: f64) {
        match self.surprises.get_mut(self.next) {
            Some(oldest) => *oldest = surprise,
            None => self.surprises.push(surprise),
        }
        self.next = self.next.saturating_add(1) % WINDOW;
        let mut sorted = self.surprises.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let below = sorted.iter().enumerate().take_while(|(rank, _)| {
            let rank = u32::try_from(*rank).unwrap_or(u32::MAX);
            f64::from(rank) < self.quantile * f64::from(u32::try_from(last).unwrap_or(u32::MAX))
        });
        self.margin = sorted.get(below.count().min(last)).copied().unwrap_or(0.0).max(0.0);
    }
}

fn dot(left: &[f64; TERMS], right: &[f64; TERMS]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

impl Slowdown for Learned {
    const NAME: &'static str = "learned";

    fn lacks(&self, profile: &Profile) -> Option<String> {
        Contention::lacking(profile)
    }

    fn slowdown(&self, own: &Runner<'_>, beside: &[Load]) -> f64 {
        if beside.is_empty() {
            return 1.0;
        }
        self.expected(own, beside).max(1.0) * (1.0 + self.margin)
    }
}
