//! Scalers against each other, and against one that knows the future, in virtual time: how many requests were lost,
//! for how many device-hours.
//!
//! Days of traffic at thousands of requests a second are too many to follow one by one through a planner and the
//! router, so three things are simpler here than they are: a queue is a fluid ([`Queue`]), what a plan is worth
//! follows from each model's best cut of a device ([`Fleet`]), and what requests are is how many come in a twentieth
//! of a second ([`Demand`]). All three are the same for every scaler. The scalers are those of the server, unchanged.

mod demand;
mod fleet;
mod hindsight;
mod oracle;
mod queue;
mod render;
mod run;
mod study;
mod traces;

pub use demand::Demand;
pub use fleet::{Allocation, Fleet, FleetModel};
pub use hindsight::hindsight;
pub use oracle::{Oracle, bound};
pub use queue::Queue;
pub use run::{Controller, Outcome, Rules, Wanted, run};
pub use study::{Agreement, Contest, Entry, Study, agreement, contest};
pub use traces::{Trace, recorded, synthetic};

/// Why a study cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StudyError {
    /// A scaler was asked for something that makes no sense.
    #[error(transparent)]
    Scaling(#[from] gpulet_core::scaling::ScalingError),
    /// A trace cannot be read or offered.
    #[error(transparent)]
    Workload(#[from] workload::WorkloadError),
    /// A problem for the planner makes no sense.
    #[error(transparent)]
    Problem(#[from] gpulet_core::problem::ProblemError),
    /// Runs side by side went wrong.
    #[error(transparent)]
    Sim(#[from] crate::error::SimError),
    /// The models and the trace do not fit each other: the field, and what would be right.
    #[error("{field}: {problem}")]
    Setting {
        /// The field, like `models`.
        field: String,
        /// What was wrong and what would be right.
        problem: String,
    },
}
