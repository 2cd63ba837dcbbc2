//! What a [`super::Learner`] has learned about each device type. It does not change while a plan is made.

use std::collections::BTreeMap;

use super::contention::TERMS;
use super::exposure::dot;
use super::{Contention, DevicePower, Load, Runner, Slowdown};
use crate::profile::Profile;

/// Largest plausible factor. Factors above it or below its reciprocal are outliers and not interference. It also
/// limits the weights.
pub(super) const FACTOR_MAX: f64 = 10.0;

/// Weights of the terms of [`Contention::terms`], and a margin for what they do not explain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Power figures of the device.
    pub power: DevicePower,
    /// Weight of each term.
    pub weights: [f64; TERMS],
    /// Fraction added to every prediction.
    pub margin: f64,
}

impl Estimate {
    /// Predicts the factor without the margin, from 1 to 10.
    pub fn expected(&self, own: &Runner<'_>, co_located: &[Load]) -> f64 {
        if co_located.is_empty() {
            return 1.0;
        }
        let factor = dot(&self.weights, &Contention::terms(&self.power, own, co_located));
        if factor.is_nan() { FACTOR_MAX } else { factor.clamp(1.0, FACTOR_MAX) }
    }

    fn slowdown(&self, own: &Runner<'_>, co_located: &[Load]) -> f64 {
        if co_located.is_empty() {
            return 1.0;
        }
        (self.expected(own, co_located) * (1.0 + self.margin.max(0.0))).min(FACTOR_MAX)
    }
}

/// What was learned about each device type. Device types without an estimate have no interference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    device_types: BTreeMap<String, Estimate>,
}

impl Learned {
    /// Collects the estimates of these device types.
    pub fn of(device_types: impl IntoIterator<Item = (String, Estimate)>) -> Self {
        Self { device_types: device_types.into_iter().collect() }
    }

    /// Returns the estimate of a device type, if there is one.
    pub fn device_type(&self, name: &str) -> Option<&Estimate> {
        self.device_types.get(name)
    }
}

impl Slowdown for Learned {
    const NAME: &'static str = "learned";

    fn lacks(&self, _: &Profile) -> Option<String> {
        // The constant term covers what a profile lacks: the mean effect of a co-located load.
        None
    }

    fn slowdown(&self, own: &Runner<'_>, co_located: &[Load]) -> f64 {
        self.device_types.get(own.profile.device()).map_or(1.0, |estimate| estimate.slowdown(own, co_located))
    }
}
