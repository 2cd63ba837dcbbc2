//! The crate with a fake driver. Each test runs in its own process (see `cuda_standin`).

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod closing;
mod faults;
mod gpu;
mod memory;
mod monitoring;
mod onnx;
mod opening;
mod probing;
mod random;
mod recording;
mod refusals;
mod shapes;
mod shares;
mod stage;
mod units;
