//! A fake CUDA driver library in memory, for tests on machines without a GPU.
//!
//! As a shared library it exports the C functions of the driver and keeps SM resources, contexts, streams, events and
//! memory in tables. It is stricter than the driver: a call out of order, a destroyed handle, a stream that outlives its
//! context, or a second split of a device returns an error *and* is recorded as a violation, so a test fails even if the
//! code under test ignores errors. Any call can be made to fail. The functions of the management library (NVML) are
//! there too, with readings of the same GPUs.
//!
//! As a Rust library it is the tests' side: [`with_driver`] runs a test in a process that loads the stand-in as its
//! driver. The stand-in behaves as the driver is documented; tests that need a GPU confirm that the documentation is
//! true.

mod calls;
mod codes;
mod control;
mod gpm;
mod graphs;
mod hooks;
mod kernels;
mod machine;
mod management;
mod memory;
mod resources;
mod shape;
mod stage;
mod streams;

pub use control::{Control, Kind, NotStandin};
pub use shape::{BadShape, Shape};
pub use stage::{Driver, staged, with_driver};
