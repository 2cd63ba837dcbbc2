//! What hardware can do and who gets it, as pure functions.
//!
//! [`profile`] holds how long a batch takes on a share of a device, [`interference`] how much longer beside others,
//! [`problem`] what is wanted, [`placement`] the policies that answer with a [`plan`], and [`check`] the judge that
//! shares no code with them: a planner's own word that its plan meets the objectives is worth little. [`scaling`] says
//! which rates to plan for as the load moves, [`rollout`] how to get from one plan to the next, [`control`] puts these
//! together as one loop, [`warm_pool`] says which sessions outlive their gpulets, and [`supervision`] when what died is
//! started again. No clock, no files, no threads, no randomness of its own: the same problem gives the same plan, byte
//! for byte.
//!
//! Times are microseconds, rates are requests a second, memory is bytes, and a device's space is a whole number of
//! units, the smallest share that it can give.

#![forbid(unsafe_code)]

pub mod control;
pub mod id;
pub mod interference;
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
