//! Gpulets in worker processes: results equal those of the same device in this process, and every end of a process is
//! handled.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

mod failures;
mod process;
mod results;
mod starts;
mod support;
