//! The rates that a fleet plans for, from rates that were measured.
//!
//! Plans must not follow every change of the traffic, because models that move have to be loaded. So rates rise within half a minute and
//! fall after five minutes, and small changes are ignored.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time in which the mean of a rate follows 63 % of a jump.
const FOLLOW: Duration = Duration::from_secs(30);
/// Time for which the highest mean counts.
const REMEMBER: Duration = Duration::from_secs(300);
/// Time between two falling means that are remembered.
const PEAK: Duration = Duration::from_secs(15);
/// Changes of the rate by less than this part are ignored.
const IGNORED: f64 = 0.1;
/// Rows a second below which a model has no traffic: one request in 100 seconds.
const LEAST: f64 = 0.01;

/// The rate of one model.
#[derive(Clone, Debug, Default, PartialEq)]
struct Estimate {
    mean: f64,
    at: Duration,
    /// Falling means, each with the time until which it counts, in the order of time.
    peaks: VecDeque<(Duration, f64)>,
    rate: f64,
}

/// Rates by model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    models: BTreeMap<String, Estimate>,
}

impl Traffic {
    /// Rows a second to plan for. 0 for a model that was never observed.
    #[must_use]
    pub fn rate(&self, model: &str) -> f64 {
        self.models.get(model).map_or(0.0, |estimate| estimate.rate)
    }

    /// Whether a model was observed.
    #[must_use]
    pub fn knows(&self, model: &str) -> bool {
        self.models.contains_key(model)
    }

    /// A model has this many rows a second now. The first observation counts as a whole. Numbers that are not finite count as 0.
    pub fn observe(&mut self, now: Duration, model: &str, rate: f64) {
        let rate = if rate.is_finite() { rate.max(0.0) } else { 0.0 };
        let is_new = !self.knows(model);
        let estimate = self.models.entry(model.to_owned()).or_default();
        let passed = now.saturating_sub(estimate.at).as_secs_f64();
        let follows = if is_new { 1.0 } else { 1.0 - (-passed / FOLLOW.as_secs_f64()).exp() };
        estimate.mean += follows * (rate - estimate.mean);
        estimate.at = now;
        estimate.remember(now);
    }

    /// Drops models that are not asked for any more.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.models.retain(|model, _| is_kept(model));
    }
}

impl Estimate {
    fn remember(&mut self, now: Duration) {
        let until = now.saturating_add(REMEMBER);
        while self.peaks.pop_back_if(|(_, peak)| *peak <= self.mean).is_some() {}
        if self.peaks.back().is_none_or(|(last, _)| until.saturating_sub(*last) >= PEAK) {
            self.peaks.push_back((until, self.mean));
        }
        while self.peaks.pop_front_if(|(until, _)| *until <= now).is_some() {}
        let highest = self.peaks.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
        let highest = if highest < LEAST { 0.0 } else { highest };
        if (highest - self.rate).abs() > IGNORED * self.rate || highest == 0.0 {
            self.rate = highest;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn observed(traffic: &mut Traffic, from: u64, to: u64, rate: f64) {
        (from..to).step_by(10).for_each(|at| traffic.observe(Duration::from_secs(at), "m", rate));
    }

    #[test]
    fn rates_rise_soon_and_fall_late() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.rate("m"), 0.0);
        observed(&mut traffic, 0, 60, 100.0);
        assert_eq!(traffic.rate("m"), 100.0);
        observed(&mut traffic, 60, 100, 200.0);
        assert!(traffic.rate("m") > 160.0, "{}", traffic.rate("m"));
        observed(&mut traffic, 100, 390, 0.0);
        assert!(traffic.rate("m") > 160.0, "a lull does not count: {}", traffic.rate("m"));
        observed(&mut traffic, 390, 1_400, 0.0);
        assert_eq!(traffic.rate("m"), 0.0);
    }

    #[test]
    fn a_rate_that_varies_a_little_does_not_change_plans() {
        let mut traffic = Traffic::default();
        observed(&mut traffic, 0, 60, 100.0);
        for minute in 1..60 {
            let rate = if minute % 2 == 0 { 94.0 } else { 106.0 };
            observed(&mut traffic, 60 * minute, 60 * (minute + 1), rate);
            assert_eq!(traffic.rate("m"), 100.0);
        }
        traffic.retain(|_| false);
        assert_eq!(traffic.rate("m"), 0.0);
    }

    proptest! {
        /// Whatever is measured, the rate is between 0 and the highest that was observed.
        #[test]
        fn rates_are_finite_and_within_what_was_observed(
            rates in prop::collection::vec((0_u64..120, prop::num::f64::ANY), 1..50),
        ) {
            let (mut traffic, mut now, mut most) = (Traffic::default(), 0, 0.0_f64);
            for (passed, rate) in rates {
                now += passed;
                let rate = rate.min(1e12);
                traffic.observe(Duration::from_secs(now), "m", rate);
                most = if rate.is_finite() { most.max(rate) } else { most };
                prop_assert!((0.0..=most * 1.000_001).contains(&traffic.rate("m")), "{}", traffic.rate("m"));
            }
        }
    }
}
