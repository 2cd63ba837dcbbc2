//! The checks with a fake driver, and the program as a user starts it.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod engine;
mod kernel_checks;
mod model_checks;
mod program;
mod stage;
