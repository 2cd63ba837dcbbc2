//! Models split into pipeline stages over several devices.
//!
//! [`split`] splits a chain of layers into stages for unequal devices, optimally; [`ap2`] does it by a genetic search.
//! [`hexgen`] lays a transformer out on unequal GPUs. [`placement`] chooses groups of devices, their layouts and which models
//! they hold, after AlpaServe, and [`simulation`] runs requests through them in virtual time. [`verdict`] says whether splitting
//! is worth it.
//!
//! Nothing here runs a model, and tensor parallelism is a column of a profile or a cost model. All randomness comes from seeds
//! that are arguments.

#![forbid(unsafe_code)]

pub mod ap2;
pub mod budgeted_split;
pub mod chain;
mod chain_program;
pub mod device;
pub mod error;
mod genetic;
pub mod hexgen;
pub mod placement;
pub mod profile;
pub mod queueing;
pub mod simulation;
pub mod split;
pub mod traffic;
pub mod two_models;
pub mod verdict;

pub use chain_program::Objective;
pub use error::ParallelError;
pub use genetic::Effort;
