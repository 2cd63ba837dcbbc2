//! Tessera's decision core for version roll-outs, as one state machine without I/O.
//!
//! A new version of a model, the canary, gets a share of the requests while the old one, the stable version, gets the rest.
//! [`Rollout::route`] says which version the next request gets, and [`Rollout::handle`] takes how requests ended. The canary is
//! rolled back as soon as the evidence says that it is worse, and promoted once its bake time is over with enough requests and
//! no such evidence. The server feeds it from live traffic, the simulator in virtual time.
//!
//! Evidence is measured with e-processes, which may be looked at after every request: a canary as good as the stable version is
//! rolled back with a probability of at most [`FALSE_ALARM`], however long it bakes.

#![forbid(unsafe_code)]

mod evidence;
mod figures;
mod machine;
mod settings;
mod traffic_share;
mod verdict;

pub use figures::{Endings, Figures};
pub use machine::{Event, Rollout, State};
pub use settings::Settings;
pub use verdict::{Cause, Measure, Verdict};

/// Which version a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The version that served before.
    Stable,
    /// The new version.
    Canary,
}

/// How a request ended, as far as it says something about the version that ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Answered by its deadline, or answered at all without one.
    InTime,
    /// Answered after its deadline, or dropped because it could not be met.
    Late,
    /// The version failed on it.
    Failed,
}

/// Share of requests by which a canary may be worse than the stable version without being rolled back: one point.
pub const MARGIN: f64 = 0.01;
/// Probability of rolling back a canary that is not worse than the stable version by more than [`MARGIN`].
pub const FALSE_ALARM: f64 = 0.001;
