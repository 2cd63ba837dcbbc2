//! Counts that come when they come, as rates at an even pace: what every estimator here is fed with.

use crate::time::Micros;

/// Samples that one observation gives at most: two minutes at the pace of gpulet. A longer silence says no more.
const SAMPLES_MAX: u64 = 240;

/// Converts arrivals since the last observation into one rate per period.
///
/// Observations need not be even: arrivals count as spread over the time since the observation before, so a gap
/// gives as many samples as it has periods, and an early observation none. Time that goes backwards counts as no time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    period_us: Micros,
    /// Observed last.
    last_us: Option<Micros>,
    /// Microseconds of the period under way, and requests in it.
    part_us: Micros,
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
    /// A sampler with one sample per `period_us`, at least 1 µs.
    pub fn new(period_us: Micros) -> Self {
        Self { period_us: period_us.max(Micros(1)), last_us: None, part_us: Micros::ZERO, part: 0.0 }
    }

    /// Takes in how many requests arrived since the observation before. The first only starts the time.
    pub fn observe(&mut self, now: Micros, arrivals: u64) -> Samples {
        let Some(last_us) = self.last_us else {
            self.last_us = Some(now);
            return Samples::default();
        };
        let elapsed_us = now.since(last_us);
        if elapsed_us == Micros::ZERO {
            // Nothing can be said of a rate yet, and nothing is lost either.
            self.part += arrivals as f64;
            return Samples::default();
        }
        self.last_us = Some(now);
        let per_us = arrivals as f64 / elapsed_us.0 as f64;
        let missing_us = self.period_us.since(self.part_us);
        if elapsed_us < missing_us {
            self.part_us = self.part_us.after(elapsed_us);
            self.part += arrivals as f64;
            return Samples::default();
        }
        let seconds = self.period_us.as_secs_f64();
        let first = (self.part + per_us * missing_us.0 as f64) / seconds;
        let rest_us = elapsed_us.since(missing_us);
        self.part_us = Micros(rest_us.0 % self.period_us.0);
        self.part = per_us * self.part_us.0 as f64;
        let more = (rest_us.0 / self.period_us.0).min(SAMPLES_MAX);
        Samples { first: Some(first), rate: per_us * 1e6, more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_observations_give_a_sample_each() {
        let mut sampler = Sampler::new(Micros(500_000));
        assert_eq!(sampler.observe(Micros(1_000_000), 77).iter().count(), 0, "the start is unknown");
        for at in 3..10 {
            let rates: Vec<f64> = sampler.observe(Micros(at * 500_000), at).iter().collect();
            assert_eq!(rates, [2.0 * at as f64]);
        }
    }

    #[test]
    fn no_request_is_lost_or_counted_twice_however_uneven_the_observations() {
        let mut sampler = Sampler::new(Micros(500_000));
        sampler.observe(Micros(0), 0);
        let (mut now, mut offered, mut sampled) = (0, 0, 0.0);
        for step in 1..400_u64 {
            now += step * 7_919 % 1_300_000;
            let arrivals = step * 31 % 50;
            offered += arrivals;
            sampled += sampler.observe(Micros(now), arrivals).iter().map(|rate| rate * 0.5).sum::<f64>();
        }
        let left = sampler.part;
        assert!((sampled + left - offered as f64).abs() < 1e-6, "{sampled} + {left} of {offered}");
    }

    #[test]
    fn a_gap_gives_its_periods_but_never_without_end() {
        let mut sampler = Sampler::new(Micros(500_000));
        sampler.observe(Micros(0), 0);
        let rates: Vec<f64> = sampler.observe(Micros(2_000_000), 40).iter().collect();
        assert_eq!(rates, [20.0; 4]);
        assert_eq!(sampler.observe(Micros(u64::MAX), 0).iter().count(), 241);
        assert_eq!(sampler.observe(Micros(5), 3).iter().count(), 0, "time went backwards");
    }
}
