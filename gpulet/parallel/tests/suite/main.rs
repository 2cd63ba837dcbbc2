//! Splits against brute force, placements against enumeration, simulations against closed forms, and published figures.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod data;
mod figures;
mod fixtures;
mod layouts;
mod mistakes;
mod placements;
mod simulations;
mod splits;
mod verdicts;
