//! How much longer a batch takes because of what runs beside it on the same device.
//!
//! Nothing below a hardware partition isolates caches, memory bandwidth or power, so a share of the units alone does
//! not fix latency. Every model here answers with one factor on the latency alone; planners and the judge of plans
//! ask the same one. A closed list, by name, and each says what it needs a profile to know.

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
    /// What is known about its model on this device type.
    pub profile: &'a Profile,
    /// Rows.
    pub batch: u32,
    /// Units of the device that it runs on.
    pub units: u32,
}

/// One model of interference.
pub trait Slowdown {
    /// The word that configurations choose it by.
    const NAME: &'static str;

    /// What this model needs and the profile does not have; none if it has all.
    fn lacks(&self, profile: &Profile) -> Option<String>;

    /// Latency beside these loads over latency alone; at least 1, exactly finite.
    fn slowdown(&self, own: &Runner<'_>, beside: &[Load]) -> f64;
}

macro_rules! models {
    ($($(#[$doc:meta])* $variant:ident),+ $(,)?) => {
        /// The models of interference.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Interference {
            $($(#[$doc])* $variant($variant)),+
        }

        impl Interference {
            /// Every word that names a model.
            pub const NAMES: &'static [&'static str] = &[$($variant::NAME),+];

            /// The word that names this model.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $variant::NAME),+
                }
            }

            /// What this model needs and the profile does not have; none if it has all.
            pub fn lacks(&self, profile: &Profile) -> Option<String> {
                match self {
                    $(Self::$variant(model) => model.lacks(profile)),+
                }
            }

            fn beside(&self, own: &Runner<'_>, beside: &[Load]) -> f64 {
                let factor = match self {
                    $(Self::$variant(model) => model.slowdown(own, beside)),+
                };
                if factor.is_finite() { factor.max(1.0) } else { f64::INFINITY }
            }
        }
    };
}

models![
    /// CoLocated change nothing.
    NoInterference,
    /// The regression of the gpulet paper, with the coefficients given.
    Gpulet,
    /// Cache, power and launch delays, with coefficients fitted to pairs.
    Contention,
    /// iGniter's analytic model.
    Igniter,
    /// The terms of `contention`, learned from observed batches.
    Learned,
];

impl Interference {
    /// The largest factor on the latency of `own` while each neighbour runs whichever of its batches is worst: one
    /// inner list a neighbour, of the loads that take turns there. At least 1.
    pub fn slowdown(&self, own: &Runner<'_>, neighbours: &[&[Load]]) -> f64 {
        self.slowdown_with(own, &CoLocated::of(neighbours.iter().copied()))
    }

    /// The same of neighbours that are asked about often.
    pub fn slowdown_with(&self, own: &Runner<'_>, neighbours: &CoLocated) -> f64 {
        neighbours.cases().fold(1.0, |worst, beside| worst.max(self.beside(own, beside)))
    }
}
