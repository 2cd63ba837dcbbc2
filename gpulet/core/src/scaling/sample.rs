//! Counts that come when they come, as rates at an even pace: what every estimator here is fed with.

/// Samples that one observation gives at most: two minutes at the pace of gpulet. A longer silence says no more.
const SAMPLES_MAX: u64 = 240;

/// Turns arrivals since the last observation into one rate a period.
///
/// Observations need not be even: arrivals count as spread over the time since the observation before, so a gap
/// gives as many samples as it has periods, and an early observation none. Time that goes backwards counts as no time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    period_us: u64,
    /// Observed last.
    last_us: Option<u64>,
    /// Microseconds of the period under way, and requests in it.
    part_us: u64,
    part: f64,
}

/// Rates of the periods that an observation completes, requests a second; oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Samples {
    first: Option<f64>,
    rate: f64,
    more: u64,
}

impl Samples {
    /// The rates.
    pub fn iter(self) -> impl Iterator<Item = f64> {
        let more = usize::try_from(self.more).unwrap_or(usize::MAX);
        self.first.into_iter().chain(std::iter::repeat_n(self.rate, more))
    }
}

impl Sampler {
    /// With so many microseconds a sample, at least one.
    pub fn new(period_us: u64) -> Self {
        Self { period_us: period_us.max(1), last_us: None, part_us: 0, part: 0.0 }
    }

    /// Takes in how many requests arrived since the observation before. The first only starts the time.
    pub fn observe(&mut self, now_us: u64, arrivals: u64) -> Samples {
        let Some(last_us) = self.last_us else {
            self.last_us = Some(now_us);
            return Samples::default();
        };
        let elapsed_us = now_us.saturating_sub(last_us);
        if elapsed_us == 0 {
            // Nothing can be said of a rate yet, and nothing is lost either.
            self.part += arrivals as f64;
            return Samples::default();
        }
        self.last_us = Some(now_us);
        let per_us = arrivals as f64 / elapsed_us as f64;
        let missing_us = self.period_us.saturating_sub(self.part_us);
        if elapsed_us < missing_us {
            self.part_us += elapsed_us;
            self.part += arrivals as f64;
            return Samples::default();
        }
        let seconds = self.period_us as f64 / 1e6;
        let first = (self.part + per_us * missing_us as f64) / seconds;
        let rest_us = elapsed_us - missing_us;
        self.part_us = rest_us % self.period_us;
        self.part = per_us * self.part_us as f64;
        let more = (rest_us / self.period_us).min(SAMPLES_MAX);
        Samples { first: Some(first), rate: per_us * 1e6, more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_observations_give_a_sample_each() {
        let mut sampler = Sampler::new(500_000);
        assert_eq!(sampler.observe(1_000_000, 77).iter().count(), 0, "nobody knows since when");
        for at in 3..10 {
            let rates: Vec<f64> = sampler.observe(at * 500_000, at).iter().collect();
            assert_eq!(rates, [2.0 * at as f64]);
        }
    }

    #[test]
    fn no_request_is_lost_or_counted_twice_however_uneven_the_observations() {
        let mut sampler = Sampler::new(500_000);
        sampler.observe(0, 0);
        let (mut now_us, mut offered, mut sampled) = (0, 0, 0.0);
        for step in 1..400_u64 {
            now_us += step * 7_919 % 1_300_000;
            let arrivals = step * 31 % 50;
            offered += arrivals;
            sampled += sampler.observe(now_us, arrivals).iter().map(|rate| rate * 0.5).sum::<f64>();
        }
        let left = sampler.part;
        assert!((sampled + left - offered as f64).abs() < 1e-6, "{sampled} + {left} of {offered}");
    }

    #[test]
    fn a_gap_gives_its_periods_but_never_without_end() {
        let mut sampler = Sampler::new(500_000);
        sampler.observe(0, 0);
        let rates: Vec<f64> = sampler.observe(2_000_000, 40).iter().collect();
        assert_eq!(rates, [20.0; 4]);
        assert_eq!(sampler.observe(u64::MAX, 0).iter().count(), 241);
        assert_eq!(sampler.observe(5, 3).iter().count(), 0, "time went backwards");
    }
}
