//! A regression on the causes rather than on utilisations: neighbours' cache traffic, power above the cap (which
//! lowers the clock for all), and kernel launches that queue behind neighbours' launches, felt the more the shorter
//! the kernels are.
//!
//! On 607 measured pairs of four models on a V100 (1,214 latencies, iGniter's repository) its error is 2.3 % in the
//! mean and 4.6 % at the 90th percentile where rows are left out, and 2.7 % and 5.4 % where whole pairs of models
//! are; the gpulet regression has 2.8 % and 6.0 %, and 3.3 % and 6.8 %. Utilisations do not carry over to pairs
//! never seen, causes do. The terms add up over neighbours, so they extend beyond pairs.

use super::{DevicePower, Load, Runner, Slowdown};
use crate::profile::{Profile, Quantile};

/// Number of terms.
pub const TERMS: usize = 4;

/// Factor = constant + cache + power + launches, as soon as there is a neighbour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Of the terms that [`Contention::terms`] gives.
    pub coefficients: [f64; TERMS],
    /// The device's power.
    pub power: DevicePower,
}

impl Contention {
    /// CoLocated change nothing, on a device of which nothing is known: what learning starts from.
    pub const NONE: Self = Self { coefficients: [1.0, 0.0, 0.0, 0.0], power: DevicePower::UNKNOWN };

    /// Fitted to the 607 pairs on a V100, see the tests for how.
    pub const V100: Self = Self {
        coefficients: [1.000_352_000_3, 0.201_705_536_3, 0.072_495_269_7, 0.765_632_845_5],
        power: DevicePower::V100,
    };

    /// Constant, neighbours' cache use (1 = all bandwidth), hundreds of watts above the cap, square root of own
    /// kernels a microsecond.
    pub fn terms(power: &DevicePower, own: &Runner<'_>, beside: &[Load]) -> [f64; TERMS] {
        let mine = Load::of(own);
        let cache: f64 = beside.iter().map(|load| load.cache_pct).sum();
        let watts = power.idle_w + mine.power_w + beside.iter().map(|load| load.power_w).sum::<f64>();
        let kernels = own.profile.coefficients().map_or(0, |coefficients| coefficients.kernels);
        let launches = match own.profile.latency_us(Quantile::P50, own.batch, own.units) {
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

    fn slowdown(&self, own: &Runner<'_>, beside: &[Load]) -> f64 {
        if beside.is_empty() {
            return 1.0;
        }
        let terms = Self::terms(&self.power, own, beside);
        self.coefficients.iter().zip(terms).map(|(weight, term)| weight * term).sum()
    }
}
