//! The router with real lanes and sessions of the test: no sleeps, every step waits for an event.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod actor;
mod fixture;
mod gathering;
mod run_here;
mod switching;
