//! iGniter's analytic interference (Xu et al., TPDS 2023): launch delays grow with the number of co-runners, active
//! time with their cache use, and everything with the clock that the power cap leaves.

use std::collections::BTreeMap;

use super::{Load, Runner, Slowdown};
use crate::profile::Profile;

/// Power, clock and launch figures of a device type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DevicePower {
    /// Watts above which the clock falls.
    pub cap_w: f64,
    /// Watts of the idle device.
    pub idle_w: f64,
    /// Clock below the cap, MHz.
    pub clock_mhz: f64,
    /// MHz added per watt above the cap; negative.
    pub clock_mhz_per_w: f64,
    /// Microseconds added to each launch per co-running workload, itself included.
    pub launch_us_per_runner: f64,
    /// Microseconds added to each launch as soon as there is a co-runner; may be negative.
    pub launch_us: f64,
}

impl DevicePower {
    /// A device without known figures: its clock never falls.
    pub const UNKNOWN: Self = Self {
        cap_w: f64::INFINITY,
        idle_w: 0.0,
        clock_mhz: 1.0,
        clock_mhz_per_w: 0.0,
        launch_us_per_runner: 0.0,
        launch_us: 0.0,
    };
    /// A V100, fitted with the procedure and the raw figures of iGniter's repository.
    pub const V100: Self = Self {
        cap_w: 300.0,
        idle_w: 53.5,
        clock_mhz: 1530.0,
        clock_mhz_per_w: -1.025_413_64,
        launch_us_per_runner: 4.750_65,
        launch_us: -9.022_43,
    };
}

/// iGniter's model, with one set of figures per device type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Igniter {
    /// Power figures by device type.
    pub devices: BTreeMap<String, DevicePower>,
}

impl Igniter {
    fn time_us(own: &Runner<'_>, power: &DevicePower, co_located: &[Load]) -> Option<(f64, f64)> {
        let coefficients = own.profile.coefficients()?;
        let share_pct = own.profile.share_pct(own.units);
        let active = coefficients.active_us(own.batch, share_pct);
        let transfers = own.profile.load_us(own.batch) + coefficients.fetch_us_per_row * f64::from(own.batch);
        let watts = power.idle_w
            + coefficients.power_w(own.batch, share_pct)
            + co_located.iter().map(|load| load.power_w).sum::<f64>();
        let clock = power.clock_mhz + power.clock_mhz_per_w * (watts - power.cap_w).max(0.0);
        let runners = f64::from(u32::try_from(co_located.len()).unwrap_or(u32::MAX)) + 1.0;
        let delay = match co_located {
            [] => 0.0,
            _ => (power.launch_us_per_runner * runners + power.launch_us).max(0.0),
        };
        let launches = coefficients.launch_us + delay * f64::from(coefficients.kernels);
        let cache: f64 = co_located.iter().map(|load| load.cache_pct).sum();
        let busy = launches + active * (1.0 + coefficients.cache_sensitivity * cache);
        let alone = coefficients.launch_us + active + transfers;
        (clock > 0.0).then(|| (busy * power.clock_mhz / clock + transfers, alone))
    }
}

impl Slowdown for Igniter {
    const NAME: &'static str = "igniter";

    fn lacks(&self, profile: &Profile) -> Option<String> {
        if profile.coefficients().is_none() {
            return Some("a coefficients line".to_owned());
        }
        let known = self.devices.contains_key(profile.device());
        (!known).then(|| format!("power figures of device `{}`", profile.device()))
    }

    fn slowdown(&self, own: &Runner<'_>, co_located: &[Load]) -> f64 {
        // A problem refuses profiles that lack something; another caller gets a time that no objective allows.
        let Some(power) = self.devices.get(own.profile.device()) else { return f64::INFINITY };
        Self::time_us(own, power, co_located).map_or(f64::INFINITY, |(co_located, alone)| co_located / alone)
    }
}
