//! Finds lasting changes of a measured value against its expectation, with a sequential test.
//!
//! [`Drift`] is a two-sided cumulative sum (CUSUM; Page, Biometrika 1954) of log ratios of measured to expected values. Each observation is divided
//! by its usual error. It counts as at most [`Z_MAX`], so that one extreme value alone never raises an alarm.
//!
//! **False alarms.** While observations scatter around the level with the usual error, an alarm of both sides together comes once in about
//! 56,000 observations (Siegmund's approximation for [`ALLOWANCE`] and [`THRESHOLD`]). If they all lie half a usual error off, it comes once in about
//! 900. **Delay.** A change by `d` usual errors, with `d` above 1, is found after about `5 / (min(d, 3) - 1)` observations: a factor of 1.5 after 3
//! observations if the usual error is 10 %. Changes below one usual error are not found.

/// Part of each observation that does not count, in usual errors: half of the smallest change that is found quickly.
const ALLOWANCE: f64 = 1.0;
/// Sum that raises an alarm, in usual errors.
const THRESHOLD: f64 = 5.0;
/// Largest observation, in usual errors.
const Z_MAX: f64 = 3.0;
/// Observations since a change from which the new level is determined, at most.
const RECENT: usize = 16;

/// One side of the test.
#[derive(Clone, Debug, Default, PartialEq)]
struct Side {
    sum: f64,
    /// Log ratios since the sum was 0, which is when the change probably began.
    since: Vec<f64>,
}

impl Side {
    /// Adds an observation with its distance from the level on this side. Returns whether that raises an alarm.
    fn add(&mut self, log_ratio: f64, distance: f64) -> bool {
        self.sum = (self.sum + distance.min(Z_MAX) - ALLOWANCE).max(0.0);
        if self.sum == 0.0 {
            self.since.clear();
            return false;
        }
        if self.since.len() >= RECENT {
            self.since.remove(0);
        }
        self.since.push(log_ratio);
        self.sum > THRESHOLD
    }
}

/// The level of a measured value against its expectation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drift {
    level: f64,
    above: Side,
    below: Side,
}

impl Drift {
    /// A value that is `factor` times its expectation until observations show something else.
    pub fn at(factor: f64) -> Self {
        Self { level: factor.ln(), ..Self::default() }
    }

    /// The measured value divided by its expectation: exactly 1 until a change is found, and again after the value returned.
    pub fn factor(&self) -> f64 {
        self.level.exp()
    }

    /// Takes in a measured value divided by its expectation, with the usual error of its logarithm. Returns whether the factor changed. Invalid
    /// values are ignored.
    pub fn observe(&mut self, ratio: f64, usual: f64) -> bool {
        let log_ratio = ratio.ln();
        if !log_ratio.is_finite() || !usual.is_finite() || usual <= 0.0 {
            return false;
        }
        let distance = (log_ratio - self.level) / usual;
        let above = self.above.add(log_ratio, distance);
        let below = self.below.add(log_ratio, -distance);
        if !above && !below {
            return false;
        }
        let mut since =
            if above { std::mem::take(&mut self.above.since) } else { std::mem::take(&mut self.below.since) };
        since.sort_by(f64::total_cmp);
        let middle = since.get(since.len() / 2).copied().unwrap_or(log_ratio);
        // A level within the usual error is that of the expectation.
        let level = if middle.abs() <= ALLOWANCE * usual { 0.0 } else { middle };
        let is_change = level != self.level;
        *self = Self { level, ..Self::default() };
        is_change
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USUAL: f64 = 0.1;

    /// Normal values: SplitMix64 and the sum of twelve uniform ones.
    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn ratio(&mut self, factor: f64) -> f64 {
            let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
            factor * (USUAL * normal).exp()
        }
    }

    /// Observations until an alarm.
    fn until(drift: &mut Drift, noise: &mut Noise, factor: f64, most: usize) -> Option<usize> {
        (1..=most).find(|_| drift.observe(noise.ratio(factor), USUAL))
    }

    #[test]
    fn false_alarms_are_as_rare_as_documented() {
        let (mut alarms, mut noise) = (0, Noise(1));
        let mut drift = Drift::default();
        for _ in 0..2_000_000 {
            if drift.observe(noise.ratio(1.0), USUAL) {
                alarms += 1;
                drift = Drift::default();
            }
        }
        // One in 56,000 are 36; clamped and bounded observations make them rarer.
        assert!(alarms <= 48, "{alarms} alarms");
    }

    #[test]
    fn two_extreme_values_do_not_count_as_a_change() {
        let mut drift = Drift::default();
        assert!(!drift.observe(1000.0, USUAL) && !drift.observe(1000.0, USUAL));
        assert!((0..50).all(|_| !drift.observe(1.0, USUAL)));
        assert_eq!(drift.factor(), 1.0);
    }

    proptest! {
        #[test]
        fn a_lasting_change_is_found_within_the_documented_delay_and_so_is_its_end(
            seed: u64,
            log in prop_oneof![-1.2..-0.35_f64, 0.35..1.2_f64],
        ) {
            let (mut drift, mut noise, factor) = (Drift::default(), Noise(seed), log.exp());
            let delay = until(&mut drift, &mut noise, factor, 20);
            prop_assert!(delay.is_some_and(|delay| (3..=10).contains(&delay)), "{delay:?}");
            for _ in 0..200 {
                drift.observe(noise.ratio(factor), USUAL);
            }
            prop_assert!((drift.factor().ln() - log).abs() < 2.0 * USUAL, "{} of {factor}", drift.factor());
            for _ in 0..60 {
                drift.observe(noise.ratio(1.0), USUAL);
            }
            prop_assert!((drift.factor().ln()).abs() < 2.0 * USUAL, "{}", drift.factor());
        }

        #[test]
        fn any_observations_keep_the_factor_finite_and_the_memory_bounded(
            all in prop::collection::vec((any::<f64>(), any::<f64>()), 0..200),
        ) {
            let mut drift = Drift::default();
            for (ratio, usual) in all {
                drift.observe(ratio, usual);
                prop_assert!(drift.factor().is_finite() || drift.level > 700.0, "{drift:?}");
                prop_assert!(drift.above.since.len() <= RECENT && drift.below.since.len() <= RECENT);
            }
        }
    }
}
