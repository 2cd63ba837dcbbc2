//! The NVIDIA driver, in two layers: the library and the types of its calls (`sys`, `library`), and safe types that own
//! what they create. All `unsafe` code of the crate is here, except for the engine's traits (`onnx`).
//!
//! cudarc's own functions are not called: they end the process where a symbol is missing, and they return an enum,
//! which is undefined behaviour if a newer driver returns a code that the enum does not have. Its types are used, and
//! the compiler checks our table of calls against its signatures.
//!
//! Ownership enforces the driver's order of destruction. A stream keeps its context alive, and a context the primary
//! one: streams end before contexts and contexts before the device, in whatever order they are dropped. The only handle
//! that leaves this module is a stream's address, for libraries that need it.
//!
//! Driver 580 lets an event of the primary context be recorded on a green stream (seen on an H200). Where a driver refuses,
//! [`Stream::record`] records through the green context, which is equivalent because a gpulet has one stream.

#![expect(unsafe_code, reason = "a C library is called; each use says why it is sound")]

mod device;
mod error;
mod graph;
mod green;
mod kernel;
mod library;
mod memory;
mod primary;
mod stream;
mod sys;

pub use error::{DriverError, ErrorClass};
pub use graph::{CaptureError, Graph};
pub use green::{Descriptor, GreenContext, SmResource, Split, SplitError};
pub use kernel::{Kernel, Module};
pub use library::{Driver, LibraryError};
pub use memory::{DeviceBuffer, PinnedBuffer};
pub use primary::{Primary, StreamPriorities};
pub use stream::{Event, Stream};
