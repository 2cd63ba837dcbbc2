//! Mean contention that batches meet while co-located gpulets are busy for only a part of the time.

use super::contention::TERMS;
use super::{Contention, DevicePower, Load, Runner};

/// Mean terms of [`Contention::terms`] over batches, with 0 for solo batches, and the fraction of co-located batches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exposure {
    pub(super) terms: [f64; TERMS],
    /// Fraction of the batches that ran co-located, from 0 to 1.
    pub share: f64,
}

impl Exposure {
    /// Returns what a batch meets on average. Each co-located gpulet has a mean load while it is busy, and a busy
    /// fraction of the time, from 0 to 1.
    ///
    /// A batch begins independently of its co-located batches, so it meets their time average. The result is exact
    /// for all terms that add up over loads. Power above the cap does not add up; it is that of the mean load while
    /// at least one gpulet is busy.
    pub fn partly(power: &DevicePower, own: &Runner<'_>, co_located: &[(Load, f64)]) -> Self {
        let part = |busy: f64| if busy.is_finite() { busy.clamp(0.0, 1.0) } else { 0.0 };
        let share = 1.0 - co_located.iter().map(|(_, busy)| 1.0 - part(*busy)).product::<f64>();
        if share <= 0.0 {
            return Self::default();
        }
        // At least one gpulet is busy for `share` of the time. `load` is the mean total load in that time.
        let loads: f64 = co_located.iter().map(|(_, busy)| part(*busy)).sum();
        let each: Vec<(Load, f64)> = co_located.iter().map(|(load, busy)| (*load, part(*busy))).collect();
        let load = Load::mean(&each).times(loads / share);
        Self { terms: Contention::terms(power, own, &[load]).map(|term| share * term), share }
    }

    /// Adds the exposure of `weight` other batches.
    pub fn add(&mut self, other: &Self, weight: f64) {
        for (own, term) in self.terms.iter_mut().zip(other.terms) {
            *own += weight * term;
        }
        self.share += weight * other.share;
    }

    /// Returns the mean of a sum over batches of this total weight.
    #[must_use]
    pub fn over(&self, weight: f64) -> Self {
        Self { terms: self.terms.map(|term| term / weight), share: (self.share / weight).min(1.0) }
    }
}

pub(super) fn dot(left: &[f64; TERMS], right: &[f64; TERMS]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}
