//! The async shell around `router-core`. One actor owns the core, the payloads and the lanes; callers hold a
//! [`RouterHandle`].
//!
//! Three hand-overs a request: task to actor, actor to lane, lane to actor. Every accepted request gets exactly
//! one answer; dropping the future of [`RouterHandle::submit`] cancels it.

#![forbid(unsafe_code)]

mod actor;
mod clock;
mod handle;
mod job;
mod outlet;
mod payload;
mod plan;
mod sequences;

pub use actor::{RouterOptions, start};
pub use handle::RouterHandle;
pub use job::{Answer, Job, RecordKey, Rejection, Stage, Timing, VariantQuery};
pub use plan::{LaneDownError, LanePlan, SwitchError};
pub use router_core::{Gather, GatherCounts};
pub use sequences::{SequenceModel, SequenceStep, ServerInput, ServerValue, StateOutput, server_tensor};
