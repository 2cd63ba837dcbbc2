//! The load generator against servers that misbehave on order.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

mod answers;
mod connections;
mod endings;
mod misbehaviour;
mod offered;
mod omission;
mod refusals;
mod server;
mod support;
