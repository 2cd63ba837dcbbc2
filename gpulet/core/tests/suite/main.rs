//! What profiles, interference and placement say where the answer is known: worked examples of publications, public
//! measurements, and random problems.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

mod data;
mod exact;
mod fast_gshare;
mod igniter;
mod interference;
mod learning;
mod mixes;
mod oracle;
mod properties;
mod published;
mod replanning;
mod rollout;
mod scaling;
mod shipped;
mod supervision;
mod support;
mod temporal;
mod tessera;
mod validate;
