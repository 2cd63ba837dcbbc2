//! Demand a short while ahead, with its uncertainty.
//!
//! No single smoothing suits all traffic: rates that jump once a minute are best followed at once, rates that jitter
//! around a slow tide are best averaged. So several smoothers run side by side, with and without a damped trend, each
//! keeps the distribution of its own errors at the horizon that matters, which is the time a change takes, and the one
//! is believed that lately needed the least capacity for the loss allowed. Should a faster one be so far above it that
//! its errors do not explain that, demand has changed, and the faster one is believed.

use std::collections::VecDeque;

use super::residuals::Residuals;

/// Samples ahead at most.
pub const HORIZON_MAX: u32 = 240;
/// Samples between two choices of a smoother.
const CHOICE_EVERY: u32 = 20;
/// What a trend loses from sample to sample.
const DAMPING: f64 = 0.9;
/// Samples that errors are remembered over: ten minutes at half a second.
const MEMORY: f64 = 1_200.0;
/// A faster smoother wins if demand below the chosen forecast has at most this probability by its own errors.
const SURPRISE: f64 = 0.01;
/// How much less capacity another smoother must need to be chosen: choices that swing move capacity for nothing.
const BETTER: f64 = 0.99;

/// Samples that a level is averaged over, and whether it has a trend.
const SMOOTHERS: [(f64, bool); 7] =
    [(1.0, false), (3.0, false), (8.0, false), (20.0, false), (60.0, false), (8.0, true), (30.0, true)];

#[derive(Clone, Debug, PartialEq)]
struct Smoother {
    weight: f64,
    trend_weight: f64,
    level: f64,
    trend: f64,
    /// Forecasts made for the samples to come, oldest first.
    pending: VecDeque<f64>,
    residuals: Residuals,
}

impl Smoother {
    fn new((samples, with_trend): (f64, bool)) -> Self {
        let weight = 2.0 / (samples + 1.0);
        Self {
            weight,
            trend_weight: if with_trend { weight / 4.0 } else { 0.0 },
            level: 0.0,
            trend: 0.0,
            pending: VecDeque::new(),
            residuals: Residuals::over(MEMORY),
        }
    }

    fn observe(&mut self, sample: f64, is_first: bool, ahead: &Ahead) {
        if self.pending.len() >= ahead.samples {
            let forecast = self.pending.pop_front().unwrap_or(sample);
            self.residuals.observe((sample + ahead.least) / (forecast + ahead.least));
        }
        if is_first {
            self.level = sample;
        } else {
            let expected = self.level + DAMPING * self.trend;
            let level = expected + self.weight * (sample - expected);
            self.trend =
                DAMPING * self.trend + self.trend_weight * (level - self.level - DAMPING * self.trend);
            self.level = level;
        }
        self.pending.push_back(self.forecast(ahead));
    }

    fn forecast(&self, ahead: &Ahead) -> f64 {
        (self.level + self.trend * ahead.trend).max(0.0)
    }
}

/// How far ahead.
#[derive(Clone, Debug, PartialEq)]
struct Ahead {
    samples: usize,
    /// What a trend of one a sample adds up to by then.
    trend: f64,
    /// Requests a second that both sides of a ratio are raised by, so that silence and single requests have one.
    least: f64,
}

/// Forecast of one model's rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    smoothers: Vec<Smoother>,
    ahead: Ahead,
    seen: u32,
    chosen: usize,
}

/// What is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected<'a> {
    /// Requests a second.
    pub rate: f64,
    least: f64,
    residuals: &'a Residuals,
}

impl Expected<'_> {
    /// Requests a second of capacity that all but the given part of the demand finds.
    pub fn capacity_for(&self, shortfall: f64) -> f64 {
        ((self.rate + self.least) * self.residuals.capacity_for(shortfall) - self.least).max(0.0)
    }

    /// Part of the demand that will exceed the capacity.
    pub fn shortfall(&self, capacity: f64) -> f64 {
        self.residuals.shortfall((capacity + self.least) / (self.rate + self.least))
    }
}

impl Forecast {
    /// So many samples ahead, from 1 to [`HORIZON_MAX`], of samples that each stand for `period_us`.
    pub fn new(horizon: u32, period_us: u64) -> Self {
        let horizon = horizon.clamp(1, HORIZON_MAX);
        let trend = (1..=horizon).scan(1.0, |step, _| {
            *step *= DAMPING;
            Some(*step)
        });
        let least = 1e6 / period_us.max(1) as f64;
        let ahead = Ahead { samples: horizon as usize, trend: trend.sum(), least };
        let smoothers = SMOOTHERS.into_iter().map(Smoother::new).collect();
        Self { smoothers, ahead, seen: 0, chosen: 2 }
    }

    /// Takes in a sample, requests a second. `shortfall` is the loss by which smoothers are compared.
    pub fn observe(&mut self, sample: f64, shortfall: f64) {
        let sample = if sample.is_finite() { sample.max(0.0) } else { 0.0 };
        for smoother in &mut self.smoothers {
            smoother.observe(sample, self.seen == 0, &self.ahead);
        }
        self.seen = self.seen.saturating_add(1);
        if self.seen.is_multiple_of(CHOICE_EVERY) {
            self.choose(shortfall);
        }
    }

    fn choose(&mut self, shortfall: f64) {
        // Capacity for a demand of one: what it asks for over what comes.
        let needs =
            |smoother: &Smoother| smoother.residuals.capacity_for(shortfall) / smoother.residuals.mean();
        let mut best = self.smoothers.get(self.chosen).map_or(f64::INFINITY, needs) * BETTER;
        for (number, smoother) in self.smoothers.iter().enumerate() {
            let needed = needs(smoother);
            if needed < best {
                (best, self.chosen) = (needed, number);
            }
        }
    }

    /// What to expect at the horizon.
    pub fn expected(&self) -> Option<Expected<'_>> {
        let chosen = self.smoothers.get(self.chosen)?;
        let surely =
            |smoother: &Smoother| smoother.forecast(&self.ahead) * smoother.residuals.quantile(SURPRISE);
        let surest = self.smoothers.iter().map(surely).fold(0.0, f64::max);
        let rate = chosen.forecast(&self.ahead).max(surest);
        Some(Expected { rate, least: self.ahead.least, residuals: &chosen.residuals })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean capacity over mean demand, and the part of the demand lost, of following the forecast for a loss of 1 %.
    fn followed(samples: &[f64], horizon: u32) -> (f64, f64) {
        let mut forecast = Forecast::new(horizon, 500_000);
        let mut capacities = VecDeque::new();
        let (mut offered, mut given, mut lost) = (0.0, 0.0, 0.0);
        for (at, sample) in samples.iter().enumerate() {
            forecast.observe(*sample, 0.01);
            capacities.push_back(forecast.expected().unwrap().capacity_for(0.01));
            if capacities.len() > horizon as usize {
                let capacity = capacities.pop_front().unwrap();
                if at > 600 {
                    offered += sample;
                    given += capacity;
                    lost += (sample - capacity).max(0.0);
                }
            }
        }
        (given / offered, lost / offered)
    }

    /// Uniform on 0 to 1, the same in every run.
    fn jitter(at: u32) -> f64 {
        f64::from(at.wrapping_mul(2_654_435_761) >> 8) / f64::from(1_u32 << 24)
    }

    #[test]
    fn jitter_around_a_slow_tide_is_averaged() {
        let tide = |at: u32| 1_000.0 + 300.0 * (f64::from(at) / 2_000.0).sin();
        let samples: Vec<f64> = (0..20_000).map(|at| tide(at) * (0.8 + 0.4 * jitter(at))).collect();
        let (given, lost) = followed(&samples, 5);
        println!("tide: {given:.3} of the demand, {lost:.4} lost");
        // The best constant multiple of the true tide loses 1 % at 1.2 - sqrt(0.8 x 0.01) = 1.111.
        assert!(given < 1.13 && lost < 0.012, "{given} {lost}");
    }

    #[test]
    fn steps_are_followed_at_once() {
        let samples: Vec<f64> = (0..20_000).map(|at| 500.0 + 300.0 * jitter(at / 120)).collect();
        let (given, lost) = followed(&samples, 5);
        println!("steps: {given:.3} of the demand, {lost:.4} lost");
        assert!(given < 1.06 && lost < 0.02, "{given} {lost}");
    }

    #[test]
    fn ramps_are_led() {
        let samples: Vec<f64> =
            (0..6_000_u32).map(|at| f64::from((at % 2_000).min(2_000 - at % 2_000)) * 2.0 + 100.0).collect();
        let (given, lost) = followed(&samples, 20);
        println!("ramps: {given:.3} of the demand, {lost:.4} lost");
        assert!(given < 1.1 && lost < 0.012, "{given} {lost}");
    }

    #[test]
    fn silence_and_single_requests_are_expected_too() {
        let mut forecast = Forecast::new(5, 500_000);
        for _ in 0..1_000 {
            forecast.observe(0.0, 0.01);
        }
        let expected = forecast.expected().unwrap();
        assert!(expected.rate == 0.0 && expected.capacity_for(0.01) < 0.5, "{expected:?}");
        for _ in 0..8 {
            forecast.observe(400.0, 0.01);
        }
        assert!(
            forecast.expected().unwrap().rate > 300.0,
            "a burst out of silence is believed within seconds"
        );
        forecast.observe(f64::NAN, 0.01);
        assert!(forecast.expected().unwrap().rate.is_finite());
    }
}
