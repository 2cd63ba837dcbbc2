//! What the processes say to each other.
//!
//! Each conversation has a socket of its own, and in each one side asks and the other one answers:
//!
//! | socket | from the server | from the worker |
//! |---|---|---|
//! | of the process | [`Hello`], then [`Open`] with the gpulet's socket | [`Ready`], then nothing but [`Dying`] |
//! | of a gpulet | [`Load`] with the session's socket and the model's file | [`Opened`] |
//! | of a session | [`Run`], with the file of a new region | [`Loaded`], then [`Ran`], with the file of a new region |
//!
//! The end of a conversation is the end of its socket: what it was about is closed, and then the other end is, so that
//! whoever closes knows when memory is free again.

mod describe;
mod message;
mod socket;

pub(crate) use describe::{WireDevice, WireFiles, WireOptions, WireSignature};
pub use message::Hello;
pub(crate) use message::{
    Dying, Failure, Load, Loaded, Open, Opened, PROTOCOL, Ran, Ready, Refused, Run, TensorHead,
};
pub(crate) use socket::{Files, Socket, WireError};
