//! Decides how devices are shared, with pure functions.
//!
//! [`profile`] holds how long a batch takes on a share of a device, and [`interference`] how much longer it takes
//! under contention. [`problem`] describes devices and workloads. The policies in [`placement`] convert a problem
//! into a [`plan`], and [`validate`] checks plans without sharing code with the policies. [`scaling`] chooses the
//! rates to plan for, [`rollout`] replaces one plan by another, and [`control`] combines these in one loop.
//! [`drift`] finds lasting changes of measured times against their expectation. [`warm_pool`] decides which sessions outlive their gpulets, [`memory_ledger`] which models fit into memory, and [`supervision`] when to restart what failed. The
//! crate uses no clock, files, threads or randomness. The same problem gives the same plan, byte for byte.
//!
//! Times are microseconds, rates are requests per second, and memory is bytes. The size of a share is a whole number
//! of units, the smallest share that a device can give.

#![forbid(unsafe_code)]

pub mod control;
pub mod drift;
pub mod id;
pub mod interference;
pub mod memory_ledger;
pub mod placement;
pub mod plan;
pub mod problem;
pub mod profile;
pub mod rollout;
pub mod scaling;
pub mod supervision;
pub mod time;
pub mod validate;
pub mod warm_pool;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
