//! The protocol between the server and its workers.
//!
//! Each conversation has its own socket; on each, one side asks and the other answers:
//!
//! | socket | from the server | from the worker |
//! |---|---|---|
//! | of the process | [`Hello`], then [`Open`] with the gpulet's socket | [`Ready`], at the end [`Dying`] |
//! | of a gpulet | [`Load`] with the session's socket and the model's file | [`Opened`] |
//! | of a session | [`Run`], with the file of a new region | [`Loaded`], then [`Ran`], with the file of a new region |
//!
//! A conversation ends when its socket closes. The worker frees everything that belongs to it before it closes its
//! end, so the server knows when the memory is free.

#[cfg(test)]
mod fuzz_tests;
mod message;
mod socket;

pub use message::Hello;
pub(crate) use message::{
    Dying, Load, Loaded, Open, Opened, PROTOCOL, Ran, Ready, Refused, Run, TensorHead, WireFiles, bounded,
    bounded_error,
};
pub(crate) use socket::{Files, Socket, WireError};
