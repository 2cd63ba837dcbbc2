//! What published policies do on literal kernels and jobs, on random ones, and on the public data where it is at hand.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod data;
mod fixtures;
mod gpu;
mod kernel_policies;
mod orders;
mod random_policies;
mod training_jobs;
