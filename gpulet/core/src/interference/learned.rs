//! What a [`super::Learner`] of each device type has learned, to plan with: it stays as it is while a plan is made.

use std::collections::BTreeMap;

use super::contention::TERMS;
use super::exposure::dot;
use super::learner::FACTOR_MAX;
use super::{Contention, DevicePower, Load, Runner, Slowdown};
use crate::profile::Profile;

/// Weights of the terms of [`Contention::terms`], and what is added for what they do not explain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The device's power.
    pub power: DevicePower,
    /// Of each term.
    pub weights: [f64; TERMS],
    /// Part added to every prediction.
    pub margin: f64,
}

impl Estimate {
    /// Prediction without the margin; from 1 to 10.
    pub fn expected(&self, own: &Runner<'_>, beside: &[Load]) -> f64 {
        if beside.is_empty() {
            return 1.0;
        }
        let factor = dot(&self.weights, &Contention::terms(&self.power, own, beside));
        if factor.is_nan() { FACTOR_MAX } else { factor.clamp(1.0, FACTOR_MAX) }
    }

    fn slowdown(&self, own: &Runner<'_>, beside: &[Load]) -> f64 {
        if beside.is_empty() {
            return 1.0;
        }
        (self.expected(own, beside) * (1.0 + self.margin.max(0.0))).min(FACTOR_MAX)
    }
}

/// What was learned of each device type. On device_types of which nothing was, neighbours change nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    device_types: BTreeMap<String, Estimate>,
}

impl Learned {
    /// Of these device types.
    pub fn of(device_types: impl IntoIterator<Item = (String, Estimate)>) -> Self {
        Self { device_types: device_types.into_iter().collect() }
    }

    /// What was learned of a device type.
    pub fn device_type(&self, name: &str) -> Option<&Estimate> {
        self.device_types.get(name)
    }
}

impl Slowdown for Learned {
    const NAME: &'static str = "learned";

    fn lacks(&self, _: &Profile) -> Option<String> {
        // What a profile does not know is in the constant term: a neighbour costs so much.
        None
    }

    fn slowdown(&self, own: &Runner<'_>, beside: &[Load]) -> f64 {
        self.device_types.get(own.profile.device()).map_or(1.0, |estimate| estimate.slowdown(own, beside))
    }
}
