//! Demand of a running batch on the parts of a device that all gpulets share.

use super::Runner;
use crate::profile::Quantile;

/// Demand of one running batch on shared parts; 0 where its profile has no value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Use of the cache's bandwidth, solo on the whole device, from 0 to 1, times its share of the units.
    pub cache_scaled: f64,
    /// Use of the memory bandwidth, solo on the whole device, from 0 to 1, times its share of the units.
    pub bandwidth_scaled: f64,
    /// Percent of the cache's bandwidth that it uses on its own units.
    pub cache_pct: f64,
    /// Watts above the idle device.
    pub power_w: f64,
}

impl Load {
    /// Returns the load of a batch on its units.
    pub fn of(runner: &Runner<'_>) -> Self {
        let Runner { profile, batch, units } = *runner;
        let used = profile.utilisation(batch).unwrap_or_default();
        let share_pct = profile.share_pct(units);
        let (cache_pct, power_w) = match profile.coefficients() {
            Some(coefficients) => {
                (coefficients.cache_pct(batch, share_pct), coefficients.power_w(batch, share_pct))
            }
            None => {
                // Cache use is proportional to the work per second, which is less on a smaller share.
                let time = |units| profile.expected_us(Quantile::P50, batch, units).ok();
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

    /// Returns the mean of loads of which one runs at any time, each weighted by its time.
    pub fn mean(loads: &[(Self, f64)]) -> Self {
        let all: f64 = loads.iter().map(|(_, time)| time).sum();
        if all.is_nan() || all <= 0.0 {
            return Self::default();
        }
        loads.iter().fold(Self::default(), |sum, (load, time)| {
            let part = load.times(time / all);
            Self {
                cache_scaled: sum.cache_scaled + part.cache_scaled,
                bandwidth_scaled: sum.bandwidth_scaled + part.bandwidth_scaled,
                cache_pct: sum.cache_pct + part.cache_pct,
                power_w: sum.power_w + part.power_w,
            }
        })
    }

    /// Multiplies every demand by a factor.
    #[must_use]
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            cache_scaled: factor * self.cache_scaled,
            bandwidth_scaled: factor * self.bandwidth_scaled,
            cache_pct: factor * self.cache_pct,
            power_w: factor * self.power_w,
        }
    }

    /// Returns the largest of each demand over the loads.
    pub fn envelope(loads: &[Self]) -> Self {
        loads.iter().fold(Self::default(), |most, load| Self {
            cache_scaled: most.cache_scaled.max(load.cache_scaled),
            bandwidth_scaled: most.bandwidth_scaled.max(load.bandwidth_scaled),
            cache_pct: most.cache_pct.max(load.cache_pct),
            power_w: most.power_w.max(load.power_w),
        })
    }
}
