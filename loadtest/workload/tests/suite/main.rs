//! What a workload file means, from the outside.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

mod determinism;
mod noise;
mod processes;
mod recorded;
mod refusals;
mod stages;
mod support;
mod traces;
