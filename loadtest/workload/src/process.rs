//! How requests for a model arrive, as a checked description; [`crate::stream`] draws from it.
//!
//! Rates are requests a nanosecond. Every process is stationary where its definition allows: it is looked at
//! from a random moment on, not from an arrival on, so that the expected number of requests is exact from the
//! first second (a gamma process of CV 4 that started with an arrival would offer 7.5 requests too many).

use std::f64::consts::TAU;
use std::sync::Arc;

/// An arrival process.
#[derive(Clone, Debug)]
pub(crate) enum Process {
    /// No requests.
    Silent,
    /// Independent arrivals.
    Poisson { rate: f64 },
    /// Evenly spaced, the first at a random phase.
    Uniform { rate: f64 },
    /// Gamma-distributed gaps.
    Gamma { rate: f64, cv: f64 },
    /// Poisson at the rate of a state; states follow one another in a ring, each for an exponential time.
    Modulated { states: Arc<[State]>, scale: f64 },
    /// Poisson at a rate that swings between `low * peak` and `peak`, low at the start.
    Diurnal { peak: f64, low: f64, period: u64 },
    /// Poisson at `rate`, `factor` times that from `at` on for `lasts`.
    Flash { rate: f64, at: u64, lasts: u64, factor: f64 },
    /// A rate for each step of a trace; Poisson, or gamma-distributed gaps in the time that runs as fast as the
    /// rate.
    Stepped { steps: Arc<Steps>, cv: Option<f64>, scale: f64 },
    /// The very requests of a trace, `speed` times as fast.
    Listed { listing: Arc<Listing>, speed: f64 },
}

/// A state of a modulated process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) rate: f64,
    /// Mean nanoseconds until the next state.
    pub(crate) stay: f64,
}

/// A rate that changes from step to step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steps {
    /// At least one, at least one of them above zero.
    pub(crate) rates: Vec<f64>,
    /// Nanoseconds that each lasts.
    pub(crate) step: u64,
    /// Whether the first follows the last.
    pub(crate) repeat: bool,
}

/// Requests at given times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listing {
    /// Sorted nanoseconds, at least one, each below `period`.
    pub(crate) times: Vec<u64>,
    /// Nanoseconds after which they come again.
    pub(crate) period: u64,
    pub(crate) repeat: bool,
}

impl Steps {
    /// Rate at a time and the time until which it holds.
    pub(crate) fn segment(&self, at: u64) -> (f64, u64) {
        let count = u64::try_from(self.rates.len()).unwrap_or(u64::MAX);
        let number = at / self.step;
        if number >= count && !self.repeat {
            return (0.0, u64::MAX);
        }
        let position = usize::try_from(number % count).unwrap_or(0);
        let rate = self.rates.get(position).copied().unwrap_or(0.0);
        (rate, number.saturating_add(1).saturating_mul(self.step))
    }

    fn mean(&self) -> f64 {
        self.rates.iter().sum::<f64>() / self.rates.len() as f64
    }

    /// Requests expected up to a time.
    fn expected(&self, time: u64) -> f64 {
        let length = self.step as f64 * self.rates.len() as f64;
        let (laps, rest) = match time as f64 / length {
            laps if !self.repeat && laps >= 1.0 => (1.0, 0.0),
            laps => (laps.floor(), (laps - laps.floor()) * length),
        };
        let mut left = rest;
        let partial = self.rates.iter().map(|rate| {
            let part = left.clamp(0.0, self.step as f64);
            left -= part;
            rate * part
        });
        partial.sum::<f64>() + laps * self.mean() * length
    }
}

impl Listing {
    fn expected(&self, time: f64) -> f64 {
        let count = self.times.len() as f64;
        let period = self.period as f64;
        let laps = (time / period).floor();
        if laps >= 1.0 && !self.repeat {
            return count;
        }
        let rest = time - laps * period;
        laps * count + self.times.partition_point(|at| (*at as f64) < rest) as f64
    }
}

impl Process {
    /// The word in the file.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Silent => "none",
            Self::Poisson { .. } => "poisson",
            Self::Uniform { .. } => "uniform",
            Self::Gamma { .. } => "gamma",
            Self::Modulated { .. } => "mmpp",
            Self::Diurnal { .. } => "diurnal",
            Self::Flash { .. } => "flash",
            Self::Stepped { .. } | Self::Listed { .. } => "trace",
        }
    }

    /// Requests a nanosecond in the long run; of a flash crowd, before and after it.
    pub(crate) fn rate(&self) -> f64 {
        match self {
            Self::Silent => 0.0,
            Self::Poisson { rate }
            | Self::Uniform { rate }
            | Self::Gamma { rate, .. }
            | Self::Flash { rate, .. } => *rate,
            Self::Modulated { states, scale } => scale * mean_rate(states),
            Self::Diurnal { peak, low, .. } => peak * f64::midpoint(1.0, *low),
            Self::Stepped { steps, scale, .. } => scale * steps.mean(),
            Self::Listed { listing, speed } => speed * listing.times.len() as f64 / listing.period as f64,
        }
    }

    /// Requests expected in the first `time` nanoseconds.
    pub(crate) fn expected(&self, time: u64) -> f64 {
        match self {
            Self::Silent => 0.0,
            Self::Poisson { .. } | Self::Uniform { .. } | Self::Gamma { .. } | Self::Modulated { .. } => {
                self.rate() * time as f64
            }
            Self::Diurnal { peak, low, period } => {
                let swing = (1.0 - low) / 2.0;
                let angle = TAU * time as f64 / *period as f64;
                let wave = *period as f64 / TAU * libm::sin(angle);
                peak * ((1.0 - swing) * time as f64 - swing * wave)
            }
            Self::Flash { rate, at, lasts, factor } => {
                let inside = time.saturating_sub(*at).min(*lasts);
                rate * ((time - inside) as f64 + factor * inside as f64)
            }
            Self::Stepped { steps, scale, .. } => scale * steps.expected(time),
            Self::Listed { listing, speed } => listing.expected(time as f64 * speed),
        }
    }

    /// The same process at `factor` times the rate.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        match &mut scaled {
            Self::Silent => {}
            Self::Poisson { rate }
            | Self::Uniform { rate }
            | Self::Gamma { rate, .. }
            | Self::Flash { rate, .. } => {
                *rate *= factor;
            }
            Self::Diurnal { peak, .. } => *peak *= factor,
            Self::Modulated { scale, .. } | Self::Stepped { scale, .. } => *scale *= factor,
            Self::Listed { speed, .. } => *speed *= factor,
        }
        scaled
    }
}

/// Mean rate of states that follow one another in a ring.
pub(crate) fn mean_rate(states: &[State]) -> f64 {
    let time: f64 = states.iter().map(|state| state.stay).sum();
    states.iter().map(|state| state.rate * state.stay).sum::<f64>() / time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_and_summed_over_laps() {
        let mut steps = Steps { rates: vec![1.0, 3.0], step: 10, repeat: true };
        assert_eq!(steps.segment(0), (1.0, 10));
        assert_eq!(steps.segment(19), (3.0, 20));
        assert_eq!(steps.segment(20), (1.0, 30));
        assert!((steps.expected(45) - (2.0 * 40.0 + 5.0)).abs() < 1e-9);
        steps.repeat = false;
        assert_eq!(steps.segment(20), (0.0, u64::MAX));
        assert!((steps.expected(45) - 40.0).abs() < 1e-9);
    }

    #[test]
    fn a_flash_crowd_counts_inside_its_window_only() {
        let flash = Process::Flash { rate: 2.0, at: 100, lasts: 50, factor: 5.0 };
        for (time, expected) in [(50, 100.0), (100, 200.0), (120, 400.0), (150, 700.0), (200, 800.0)] {
            assert!((flash.expected(time) - expected).abs() < 1e-9, "{time}");
        }
    }

    #[test]
    fn a_whole_day_has_the_mean_rate_and_its_start_is_the_low() {
        let diurnal = Process::Diurnal { peak: 2.0, low: 0.25, period: 1_000_000 };
        assert!((diurnal.expected(1_000_000) - diurnal.rate() * 1e6).abs() < 1e-3);
        assert!((diurnal.expected(1_000) / 1_000.0 - 0.5).abs() < 1e-3);
    }
}
