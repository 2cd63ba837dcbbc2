//! Placement policies: who runs where, on which share, in which batches. One file and one word each.
//!
//! A policy turns a [`Problem`] into a [`Plan`] or says that it cannot. What all of them keep to, because nothing
//! else would be a plan: legal shares, memory, tenants, replicas, and the objectives under the problem's model of
//! interference as far as the published algorithm knows it. Whether they succeeded is for [`crate::validate`] to say.

mod demand;
mod infeasible;
mod packing;
mod rectangles;
mod search;
mod site;

use std::fmt;

use self::demand::Unplaced;
pub use self::infeasible::{Infeasible, Remedy, Shortage};
use crate::plan::Plan;
use crate::problem::Problem;

/// What every policy is.
trait Placement {
    /// The word that configurations choose it by.
    const NAME: &'static str;
    /// For people, one line.
    const ABOUT: &'static str;

    /// A plan, or the first workload that found no place.
    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced>;
}

macro_rules! policies {
    ($($module:ident::$policy:ident),+ $(,)?) => {
        $(mod $module;
        pub use self::$module::$policy;)+

        /// A placement policy with its options.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(missing_docs, reason = "each variant is the documented policy of the same name")]
        pub enum Policy {
            $($policy($policy)),+
        }

        impl Policy {
            /// Every word that names a policy.
            pub const NAMES: &'static [&'static str] = &[$($policy::NAME),+];

            /// The policy of that name with its default options.
            pub fn named(name: &str) -> Option<Self> {
                $(if name == $policy::NAME {
                    return Some(Self::$policy($policy::default()));
                })+
                None
            }

            /// The word that names it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$policy(_) => $policy::NAME),+
                }
            }

            /// What it does, in one line.
            pub fn about(&self) -> &'static str {
                match self {
                    $(Self::$policy(_) => $policy::ABOUT),+
                }
            }

            fn try_place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
                match self {
                    $(Self::$policy(policy) => policy.place(problem)),+
                }
            }
        }
    };
}

policies![
    tessera::Tessera,
    igniter::Igniter,
    temporal::Temporal,
    gpulet::Gpulet,
    gslice::Gslice,
    fast_gshare::FastGshare,
    exact::Exact
];

pub use self::exact::Proved;

impl Policy {
    /// A plan for the problem; the same problem gives the same plan.
    ///
    /// # Errors
    /// [`Infeasible`] names the workload that found no place, what it lacks and the cheapest thing that would mend it.
    pub fn place(&self, problem: &Problem) -> Result<Plan, Infeasible> {
        self.try_place(problem).map_err(|unplaced| {
            Infeasible::explain(problem, &unplaced, |problem| self.try_place(problem).is_ok())
        })
    }
}

impl Policy {
    /// Whether its gpulets own their units in windows of time. Lanes keep no windows: such plans are for comparison.
    pub fn plans_time_windows(&self) -> bool {
        matches!(self, Self::FastGshare(_))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::Tessera(Tessera)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
