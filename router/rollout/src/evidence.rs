//! How strongly outcomes speak against a canary.
//!
//! Both tests here are e-processes: products of factors whose expectation is at most 1 as long as the canary is good enough, so
//! that the product exceeds `1 / a` with a probability of at most `a`, at whatever time one looks (Ville's inequality). A factor
//! compares two hypotheses about the next outcomes: that the canary is worse by a certain amount, and the hypothesis among those
//! under which it is good enough that is closest to it. What that amount is, is not known: the mean over several amounts is an
//! e-process too.
//!
//! Turner, Ly and Grünwald, "Generic E-variables for exact sequential k-sample tests that allow for optional stopping", Journal
//! of Statistical Planning and Inference 230 (2024): the factor for two streams of outcomes, section 2, and a convex null
//! hypothesis, section 3.

use crate::MARGIN;

/// Amounts by which a canary may be worse, beyond what is tolerated.
const WORSE_BY: [f64; 6] = [0.01, 0.03, 0.1, 0.25, 0.5, 0.95];
/// Rates are kept this far from 0 and 1, where one outcome would decide alone.
const RATE_MIN: f64 = 1e-4;
/// Bad outcomes that are assumed of one request of the stable version before its outcomes are known.
const PRIOR: f64 = 0.02;
/// Halvings in the search of a rate. Errors matter by their square only.
const HALVINGS: u32 = 24;

/// Logarithms of the products, one for each amount.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Products([f64; WORSE_BY.len()]);

impl Products {
    /// Logarithm of their mean.
    fn log_mean(&self) -> f64 {
        let largest = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.0.iter().map(|log| (log - largest).exp()).sum();
        largest + (sum / self.0.len() as f64).ln()
    }
}

/// Outcomes, and how many of them are bad.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    all: u64,
    bad: u64,
}

impl Count {
    fn add(&mut self, bad: bool) {
        self.all += 1;
        self.bad += u64::from(bad);
    }

    /// Logarithm of the likelihood of these outcomes under a rate of bad ones.
    fn log_likelihood(&self, rate: f64) -> f64 {
        self.bad as f64 * rate.ln() + (self.all - self.bad) as f64 * (1.0 - rate).ln()
    }
}

/// Whether bad outcomes are more frequent with the canary than with the stable version, by more than [`MARGIN`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    products: Products,
    /// Outcomes of the stable version in blocks that are closed.
    known: Count,
    /// Outcomes of the block that is open. A block is closed when it has outcomes of both versions.
    stable: Count,
    canary: Count,
}

impl Comparison {
    pub(crate) fn stable(&mut self, bad: bool) {
        self.stable.add(bad);
        if self.canary.all > 0 {
            self.close();
        }
    }

    pub(crate) fn canary(&mut self, bad: bool) {
        self.canary.add(bad);
        if self.stable.all > 0 {
            self.close();
        }
    }

    /// Logarithm of the evidence against the canary.
    pub(crate) fn log(&self) -> f64 {
        self.products.log_mean()
    }

    fn close(&mut self) {
        // The rate that the alternatives assume must not depend on the outcomes of the block.
        let rate = (self.known.bad as f64 + PRIOR) / (self.known.all as f64 + 1.0);
        let rate = rate.clamp(RATE_MIN, 1.0 - RATE_MIN);
        let (stable, canary) = (self.stable, self.canary);
        for (product, worse_by) in self.products.0.iter_mut().zip(WORSE_BY) {
            let worse = (rate + MARGIN + worse_by).min(1.0 - RATE_MIN);
            if worse <= rate + MARGIN {
                continue;
            }
            let good_enough = closest_good(rate, worse, stable.all, canary.all);
            *product += stable.log_likelihood(rate) - stable.log_likelihood(good_enough);
            *product += canary.log_likelihood(worse) - canary.log_likelihood(good_enough + MARGIN);
        }
        self.known.all += stable.all;
        self.known.bad += stable.bad;
        (self.stable, self.canary) = (Count::default(), Count::default());
    }
}

/// The stable version's rate `r` for which `r` and `r + MARGIN` are closest to the rates `stable` and `canary`, in relative entropy
/// over that many outcomes. It is where the derivative, which grows with `r`, is 0.
fn closest_good(stable: f64, canary: f64, stable_all: u64, canary_all: u64) -> f64 {
    let slope = |rate: f64, truth: f64, all: u64| all as f64 * (rate - truth) / (rate * (1.0 - rate));
    let (mut low, mut high) = (stable, (canary - MARGIN).max(stable));
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if slope(middle, stable, stable_all) + slope(middle + MARGIN, canary, canary_all) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Whether bad outcomes are more frequent than a rate that is tolerated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Excess {
    products: Products,
    tolerated: f64,
}

impl Excess {
    pub(crate) fn over(tolerated: f64) -> Self {
        Self { products: Products::default(), tolerated: tolerated.clamp(RATE_MIN, 1.0 - RATE_MIN) }
    }

    pub(crate) fn add(&mut self, bad: bool) {
        let one = Count { all: 1, bad: u64::from(bad) };
        for (product, worse_by) in self.products.0.iter_mut().zip(WORSE_BY) {
            let worse = (self.tolerated + worse_by).min(1.0 - RATE_MIN);
            *product += one.log_likelihood(worse) - one.log_likelihood(self.tolerated);
        }
    }

    /// Logarithm of the evidence.
    pub(crate) fn log(&self) -> f64 {
        self.products.log_mean()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt as _, SeedableRng as _};

    /// Canary outcomes until the evidence exceeds `1 / alarm`, if it does.
    fn until_alarm(
        seed: u64,
        stable: impl Fn(u32) -> f64,
        canary: impl Fn(u32) -> f64,
        per_canary: u32,
        outcomes: u32,
        alarm: f64,
    ) -> Option<u32> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut comparison = Comparison::default();
        (0..outcomes).find(|&number| {
            for _ in 0..per_canary {
                comparison.stable(random.random::<f64>() < stable(number));
            }
            comparison.canary(random.random::<f64>() < canary(number));
            comparison.log() > -alarm.ln()
        })
    }

    const RUNS: u64 = 300;

    fn share(alarms: impl Fn(u64) -> bool) -> f64 {
        (0..RUNS).filter(|&seed| alarms(seed)).count() as f64 / RUNS as f64
    }

    /// With a looser alarm than in use, so that false ones can be counted: at most 5 % of the runs, with three standard deviations
    /// on top.
    #[test]
    fn good_canaries_are_seldom_alarmed_about_however_often_one_looks() {
        let most = 0.05 + 3.0 * (0.05_f64 * 0.95 / RUNS as f64).sqrt();
        for (stable, canary) in [(0.0, 0.0), (0.02, 0.02), (0.02, 0.03), (0.3, 0.3), (0.5, 0.51), (1.0, 1.0)]
        {
            let false_alarms =
                share(|seed| until_alarm(seed, |_| stable, |_| canary, 9, 1_000, 0.05).is_some());
            assert!(false_alarms <= most, "{stable} {canary}: {false_alarms}");
        }
    }

    #[test]
    fn load_that_makes_both_versions_late_at_times_raises_no_alarm() {
        let waves = |number: u32| if (number / 50).is_multiple_of(2) { 0.01 } else { 0.6 };
        let false_alarms = share(|seed| until_alarm(seed, waves, waves, 9, 1_000, 0.05).is_some());
        assert!(false_alarms <= 0.08, "{false_alarms}");
    }

    #[test]
    fn bad_canaries_are_found_the_sooner_the_worse_they_are() {
        let median = |canary: f64| {
            let mut found: Vec<u32> = (0..101)
                .map(|seed| until_alarm(seed, |_| 0.02, |_| canary, 9, 20_000, 1e-4).unwrap_or(u32::MAX))
                .collect();
            found.sort_unstable();
            found[50]
        };
        let medians = [1.0, 0.5, 0.2, 0.1, 0.07].map(median);
        assert!(medians.is_sorted(), "{medians:?}");
        assert!(medians[0] <= 4 && medians[1] <= 20 && medians[2] <= 80 && medians[3] <= 320, "{medians:?}");
    }

    #[test]
    fn outcomes_of_one_version_alone_say_nothing() {
        let mut comparison = Comparison::default();
        (0..1_000).for_each(|_| comparison.canary(true));
        assert_eq!(comparison.log(), 0.0);
        for _ in 0..4 {
            (0..9).for_each(|_| comparison.stable(false));
            comparison.canary(true);
        }
        assert!(comparison.log() > 9.0, "{}", comparison.log());
    }

    #[test]
    fn disagreement_beyond_what_is_tolerated_is_found() {
        let mut agreeing = Excess::over(0.01);
        (0..10_000).for_each(|number| agreeing.add(number % 100 == 0));
        assert!(agreeing.log() < 1.0, "{}", agreeing.log());
        let mut differing = Excess::over(0.01);
        (0..200).for_each(|number| differing.add(number % 10 == 0));
        assert!(differing.log() > 15.0, "{}", differing.log());
        let mut never = Excess::over(0.0);
        (0..2).for_each(|_| never.add(true));
        assert!(never.log() > 9.0);
    }
}
