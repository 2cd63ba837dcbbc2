//! What a running batch asks of the parts of a device that all gpulets share.

use super::Runner;
use crate::profile::Quantile;

/// Demand of one running batch on shared parts; 0 where its profile does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Use of the cache's bandwidth alone on the whole device, from 0 to 1, times its share of the units.
    pub cache_scaled: f64,
    /// Use of the memory bandwidth alone on the whole device, from 0 to 1, times its share of the units.
    pub bandwidth_scaled: f64,
    /// Percent of the cache's bandwidth on its own units.
    pub cache_pct: f64,
    /// Watts above the idle device.
    pub power_w: f64,
}

impl Load {
    /// Of a batch on its units.
    pub fn of(runner: &Runner<'_>) -> Self {
        let Runner { profile, batch, units } = *runner;
        let used = profile.utilisation(batch).unwrap_or_default();
        let share_pct = profile.share_pct(units);
        let (cache_pct, power_w) = match profile.coefficients() {
            Some(coefficients) => {
                (coefficients.cache_pct(batch, share_pct), coefficients.power_w(batch, share_pct))
            }
            None => {
                // A smaller share uses the cache as much less as it does less work a second.
                let time = |units| profile.latency_us(Quantile::P50, batch, units).ok();
                let pace = match (time(profile.units_total()), time(units)) {
                    (Some(whole), Some(part)) => whole / part,
                    _ => 1.0,
                };
                (100.0 * used.cache.max(used.bandwidth) * pace, 0.0)
            }
        };
        Self {
            cache_scaled: used.cache * share_pct / 100.0,
            bandwidth_scaled: used.bandwidth * share_pct / 100.0,
            cache_pct,
            power_w,
        }
    }

    /// Of loads that take turns, each for so much of the time.
    pub fn mean(turns: &[(Self, f64)]) -> Self {
        let all: f64 = turns.iter().map(|(_, time)| time).sum();
        if all.is_nan() || all <= 0.0 {
            return Self::default();
        }
        turns.iter().fold(Self::default(), |sum, (load, time)| {
            let part = load.times(time / all);
            Self {
                cache_scaled: sum.cache_scaled + part.cache_scaled,
                bandwidth_scaled: sum.bandwidth_scaled + part.bandwidth_scaled,
                cache_pct: sum.cache_pct + part.cache_pct,
                power_w: sum.power_w + part.power_w,
            }
        })
    }

    /// So many times as much of everything.
    #[must_use]
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            cache_scaled: factor * self.cache_scaled,
            bandwidth_scaled: factor * self.bandwidth_scaled,
            cache_pct: factor * self.cache_pct,
            power_w: factor * self.power_w,
        }
    }

    /// At least as much of everything as any of them.
    pub fn envelope(turns: &[Self]) -> Self {
        turns.iter().fold(Self::default(), |most, load| Self {
            cache_scaled: most.cache_scaled.max(load.cache_scaled),
            bandwidth_scaled: most.bandwidth_scaled.max(load.bandwidth_scaled),
            cache_pct: most.cache_pct.max(load.cache_pct),
            power_w: most.power_w.max(load.power_w),
        })
    }
}
