//! Placement policies decide which workload runs on which share, with which batch size. Each policy is one file.
//!
//! A policy converts a [`Problem`] into a [`Plan`], or reports that it cannot. Every policy respects legal shares,
//! memory, tenants and replicas. It also respects the objectives under the problem's model of interference, as far as
//! the published algorithm considers it. [`crate::validate`] checks the result.

mod demand;
mod infeasible;
mod largest_share;
mod packing;
mod rectangles;
mod search;
mod site;

use std::fmt;

use self::demand::Unplaced;
pub use self::gslice::{Measured, Setting};
pub use self::infeasible::{Infeasible, Remedy, Shortage};
pub use self::largest_share::largest_share;
use crate::plan::Plan;
use crate::problem::Problem;

/// A placement policy.
trait Placement {
    /// Name in configurations.
    const NAME: &'static str;
    /// One-line description.
    const ABOUT: &'static str;

    /// Returns a plan, or the first workload that cannot be placed.
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
            /// Names of all policies.
            pub const NAMES: &'static [&'static str] = &[$($policy::NAME),+];

            /// Returns the policy of that name with its default options.
            pub fn named(name: &str) -> Option<Self> {
                $(if name == $policy::NAME {
                    return Some(Self::$policy($policy::default()));
                })+
                None
            }

            /// Returns the name of the policy.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$policy(_) => $policy::NAME),+
                }
            }

            /// Returns a one-line description.
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
    /// Plans the problem. The same problem gives the same plan.
    ///
    /// # Errors
    /// [`Infeasible`] names the workload that cannot be placed, what it lacks, and the cheapest remedy.
    pub fn place(&self, problem: &Problem) -> Result<Plan, Infeasible> {
        self.try_place(problem).map_err(|unplaced| {
            Infeasible::explain(problem, &unplaced, |problem| self.try_place(problem).is_ok())
        })
    }
}

impl Policy {
    /// Plans the problem. Unlike [`Policy::place`], it does not explain a failure.
    pub fn find(&self, problem: &Problem) -> Option<Plan> {
        self.try_place(problem).ok()
    }

    /// Returns whether its gpulets share units in time, by quotas that the lanes of a device must keep.
    pub fn plans_time_windows(&self) -> bool {
        matches!(self, Self::FastGshare(_))
    }

    /// Sets the most time of a gpulet with a quota, as a part of its window. Has no effect on policies without quotas.
    #[must_use]
    pub fn with_quota_limit(self, limit: f64) -> Self {
        match self {
            Self::FastGshare(policy) => Self::FastGshare(FastGshare { limit, ..policy }),
            other => other,
        }
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
