//! The Open Inference Protocol v2: vocabulary and wire formats, without any I/O.
//!
//! Bytes go in, values come out, and the other way round. The server, the load generator and the
//! fuzzers share this crate, so it must stay small and free of clocks, sockets and files.

#![forbid(unsafe_code)]

pub mod binary;
mod checks;
mod datatype;
mod error;
pub mod grpc;
pub mod json;
mod limits;
pub mod metadata;
pub mod proto;
mod request;
#[cfg(test)]
mod sample;
mod shape;
mod tensor;

pub use datatype::{Datatype, UnknownDatatype};
pub use error::{ErrorKind, ProtocolError};
pub use limits::Limits;
pub use request::{
    InferRequest, InferResponse, InputTensor, OutputParameters, Parameter, Parameters, RequestedOutput,
    SharedMemoryRef, TensorData,
};
pub use shape::{Shape, ShapeError};
pub use tensor::Tensor;
