//! What batches met beside them on average, where neighbours are busy for a part of the time only.

use super::contention::TERMS;
use super::{Contention, DevicePower, Load, Runner};

/// Mean terms of [`Contention::terms`] over batches, 0 for those with nothing beside them, and the part of the batches
/// that had something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exposure {
    pub(super) terms: [f64; TERMS],
    /// From 0 to 1.
    pub share: f64,
}

impl Exposure {
    /// What a batch meets beside neighbours: of each its mean load while it is busy, and for how much of the time that is,
    /// from 0 to 1.
    ///
    /// A batch begins at a moment that knows nothing of the neighbours, so what it meets on average is what there is on
    /// average. Exact for all terms that add up over neighbours; power above the cap, which does not, is that of the mean
    /// load of the moments with a neighbour.
    pub fn partly(power: &DevicePower, own: &Runner<'_>, neighbours: &[(Load, f64)]) -> Self {
        let part = |busy: f64| if busy.is_finite() { busy.clamp(0.0, 1.0) } else { 0.0 };
        let share = 1.0 - neighbours.iter().map(|(_, busy)| 1.0 - part(*busy)).product::<f64>();
        if share <= 0.0 {
            return Self::default();
        }
        // Together they are there for `share` of the time: then this much of each is.
        let loads: f64 = neighbours.iter().map(|(_, busy)| part(*busy)).sum();
        let each: Vec<(Load, f64)> = neighbours.iter().map(|(load, busy)| (*load, part(*busy))).collect();
        let load = Load::mean(&each).times(loads / share);
        Self { terms: Contention::terms(power, own, &[load]).map(|term| share * term), share }
    }

    /// Adds what other batches met, `weight` of them.
    pub fn add(&mut self, other: &Self, weight: f64) {
        for (own, term) in self.terms.iter_mut().zip(other.terms) {
            *own += weight * term;
        }
        self.share += weight * other.share;
    }

    /// The mean of a sum over batches of so much weight.
    #[must_use]
    pub fn over(&self, weight: f64) -> Self {
        Self { terms: self.terms.map(|term| term / weight), share: (self.share / weight).min(1.0) }
    }
}

pub(super) fn dot(left: &[f64; TERMS], right: &[f64; TERMS]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}
