//! A regression on causes rather than utilisations: the cache traffic of co-located batches, power above the cap
//! (which lowers the clock for all batches), and kernel launches that wait for other launches. The shorter the
//! kernels, the more waiting launches slow a batch.
//!
//! On 607 measured pairs of four models on a V100 (1,214 latencies, iGniter's repository), its error is 2.3 % in the
//! mean and 4.6 % at the 90th percentile with rows left out, and 2.7 % and 5.4 % with whole pairs of models left out.
//! The gpulet regression has 2.8 % and 6.0 %, and 3.3 % and 6.8 %. Causes carry over to unseen pairs, utilisations do
//! not. The terms add up over co-located batches, so they extend beyond pairs.

use super::{DevicePower, Load, Runner, Slowdown};
use crate::profile::{Profile, Quantile};

/// Number of terms.
pub const TERMS: usize = 4;

/// Factor = constant + cache + power + launches, with at least one co-located batch; 1 without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Coefficients of the terms of [`Contention::terms`].
    pub coefficients: [f64; TERMS],
    /// Power figures of the device.
    pub power: DevicePower,
}

impl Contention {
    /// No effect of co-located batches, on a device without known power figures. Learning starts from it.
    pub const NONE: Self = Self { coefficients: [1.0, 0.0, 0.0, 0.0], power: DevicePower::UNKNOWN };

    /// Fitted to the 607 pairs on a V100; the tests show the procedure.
    pub const V100: Self = Self {
        coefficients: [1.000_352_000_3, 0.201_705_536_3, 0.072_495_269_7, 0.765_632_845_5],
        power: DevicePower::V100,
    };

    /// Returns the constant, the cache use of co-located batches (1 = the whole bandwidth), hundreds of watts above
    /// the cap, and the square root of own kernels per microsecond.
    pub fn terms(power: &DevicePower, own: &Runner<'_>, co_located: &[Load]) -> [f64; TERMS] {
        let mine = Load::of(own);
        let cache: f64 = co_located.iter().map(|load| load.cache_pct).sum();
        let watts = power.idle_w + mine.power_w + co_located.iter().map(|load| load.power_w).sum::<f64>();
        let kernels = own.profile.coefficients().map_or(0, |coefficients| coefficients.kernels);
        let launches = match own.profile.expected_us(Quantile::P50, own.batch, own.units) {
            Ok(time) => (f64::from(kernels) / time).sqrt(),
            Err(_) => 0.0,
        };
        [1.0, cache / 100.0, (watts - power.cap_w).max(0.0) / 100.0, launches]
    }
}

impl Slowdown for Contention {
    const NAME: &'static str = "contention";

    fn lacks(&self, profile: &Profile) -> Option<String> {
        let known = profile.coefficients().is_some() || profile.utilisation(1).is_some();
        (!known).then(|| "coefficients, or utilisation lines (cache and bandwidth by batch)".to_owned())
    }

    fn slowdown(&self, own: &Runner<'_>, co_located: &[Load]) -> f64 {
        if co_located.is_empty() {
            return 1.0;
        }
        let terms = Self::terms(&self.power, own, co_located);
        self.coefficients.iter().zip(terms).map(|(weight, term)| weight * term).sum()
    }
}
