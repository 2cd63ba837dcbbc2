//! A driver library in plain memory, for tests of devices on machines without a GPU.
//!
//! Built as a shared library it has the C names of the driver and keeps SM resources, contexts, streams, events and
//! memory in tables. It is stricter than a driver: a call out of order, a handle used after it was destroyed, a
//! stream that outlives its context, or a second split of a device is answered with an error *and* written down,
//! so that a test fails even where the code under test ignores errors. Any call can be told to fail. The management
//! library's names are there too, for readings of the same GPUs.
//!
//! As a Rust library it is the tests' side of that: [`with_driver`] runs a test in a process whose driver it is.
//! What a real driver does, the stand-in only states as it is documented; that its statements are true is what the
//! tests that need a GPU are for.

mod calls;
mod codes;
mod control;
mod gpm;
mod kernels;
mod machine;
mod management;
mod memory;
mod resources;
mod shape;
mod stage;
mod streams;
mod switches;

pub use control::{Control, Kind, NotStandin};
pub use shape::{BadShape, Shape};
pub use stage::{Driver, staged, with_driver};
