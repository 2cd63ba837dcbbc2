//! The questions beside a driver in plain memory, and the program as a person starts it.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod engine;
mod models_asked;
mod program;
mod questions;
mod stage;
