//! Gpulets in real processes: the same answers, and everything that can happen to a process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

mod deaths;
mod results;
mod starts;
mod support;
