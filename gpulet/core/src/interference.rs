//! Models how much longer a batch takes because of co-located batches on the same device.
//!
//! Only a hardware partition isolates caches, memory bandwidth and power, so the latency of a batch depends on more
//! than its share of the units. Every model here returns one factor on the solo latency. Planners and the validator
//! use the same model. The models are a closed list, chosen by name, and each states what it needs from a profile.

mod co_located;
mod contention;
mod exposure;
mod fit;
mod gpulet;
mod igniter;
mod learned;
mod learner;
mod load;
mod none;

use crate::profile::Profile;

pub use self::co_located::CoLocated;
pub use self::contention::{Contention, TERMS};
pub use self::exposure::Exposure;
pub use self::fit::{Errors, FitError, Sample, cross_validated, errors, least_squares};
pub use self::gpulet::Gpulet;
pub use self::igniter::{DevicePower, Igniter};
pub use self::learned::{Estimate, Learned};
pub use self::learner::Learner;
pub use self::load::Load;
pub use self::none::NoInterference;

/// A batch that runs on a share of a device.
#[derive(Clone, Copy, Debug)]
pub struct Runner<'a> {
    /// Profile of its model on this device type.
    pub profile: &'a Profile,
    /// Batch size, rows.
    pub batch: u32,
    /// Units of the device that the batch runs on.
    pub units: u32,
}

/// A model of interference.
pub trait Slowdown {
    /// Name in configurations.
    const NAME: &'static str;

    /// Returns what this model needs and the profile lacks, or `None` if the profile has everything.
    fn lacks(&self, profile: &Profile) -> Option<String>;

    /// Returns the co-located latency divided by the solo latency. Callers treat a factor below 1 as 1, and NaN as
    /// infinite.
    fn slowdown(&self, own: &Runner<'_>, co_located: &[Load]) -> f64;
}

macro_rules! models {
    ($($(#[$doc:meta])* $variant:ident),+ $(,)?) => {
        /// The models of interference.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Interference {
            $($(#[$doc])* $variant($variant)),+
        }

        impl Interference {
            /// Names of all models.
            pub const NAMES: &'static [&'static str] = &[$($variant::NAME),+];

            /// Returns the name of this model.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $variant::NAME),+
                }
            }

            /// Returns what this model needs and the profile lacks, or `None` if the profile has everything.
            pub fn lacks(&self, profile: &Profile) -> Option<String> {
                match self {
                    $(Self::$variant(model) => model.lacks(profile)),+
                }
            }

            fn slowdown_of(&self, own: &Runner<'_>, co_located: &[Load]) -> f64 {
                let factor = match self {
                    $(Self::$variant(model) => model.slowdown(own, co_located)),+
                };
                if factor.is_finite() { factor.max(1.0) } else { f64::INFINITY }
            }
        }
    };
}

models![
    /// Co-located batches have no effect.
    NoInterference,
    /// The regression of the gpulet paper, with the given coefficients.
    Gpulet,
    /// Cache, power and launch delays, with coefficients fitted to measured pairs.
    Contention,
    /// iGniter's analytic model.
    Igniter,
    /// The terms of `contention`, learned from observed batches.
    Learned,
];

impl Interference {
    /// Returns the largest factor on the latency of `own` while each co-located gpulet runs its worst batch. Each
    /// inner list holds the loads of one gpulet, of which one runs at any time. The factor is at least 1.
    pub fn slowdown(&self, own: &Runner<'_>, co_located: &[&[Load]]) -> f64 {
        self.slowdown_with(own, &CoLocated::of(co_located.iter().copied()))
    }

    /// Like [`Interference::slowdown`], for co-located loads that are used in several calls.
    pub fn slowdown_with(&self, own: &Runner<'_>, co_located: &CoLocated) -> f64 {
        co_located.cases().fold(1.0, |worst, case| worst.max(self.slowdown_of(own, case)))
    }
}
