//! The NVIDIA driver, in three layers: the library and the types of its calls (`sys`), one function a call that gives
//! a `Result` (`result`), and owned things that cannot be used wrongly (`safe`). All `unsafe` of the
//! crate is here, but for the engine's traits (`onnx`), which ask to be vouched for a stream.
//!
//! cudarc's own functions are not called: they end the process where a symbol is missing, and they return an enum,
//! which is undefined behaviour as soon as a newer driver has a code that the enum has not. Its types are used, and
//! the compiler checks our table of calls against its signatures.
//!
//! The driver's rules about order are kept by ownership. A stream owns a share of its context, a context a share of
//! the primary one: whatever is dropped first, streams end before contexts and contexts before the device. No handle
//! leaves this module but a stream's address, for libraries that need it.
//!
//! **\[open\]**, to be read off a GPU: whether an event of the primary context may be recorded on a green stream.
//! [`Stream::record`] tries, and where it is refused records through the green context, which is the same because a
//! gpulet has one stream.

#![expect(unsafe_code, reason = "a C library is called; each use says why it is sound")]

mod error;
mod green;
mod kernel;
mod memory;
mod primary;
mod result;
mod stream;
mod sys;

pub use error::{DriverError, ErrorClass};
pub use green::{Descriptor, GreenContext, SmResource, Split, SplitError};
pub use kernel::{Kernel, Module};
pub use memory::{DeviceBuffer, PinnedBuffer};
pub use primary::{Primary, StreamPriorities};
pub use result::{Driver, LibraryError};
pub use stream::{Event, Stream};
