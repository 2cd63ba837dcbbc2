//! Asks an NVIDIA GPU what gpulets on it can do: one question a subcommand, one JSON line an answer.
//!
//! Made for a machine that has a GPU and nothing else: one binary, models beside it. Whoever starts it is a process
//! that touches no GPU; every question is asked by a child of it, which a fault or a hang ends and which is ended when
//! its time is over. What is asked and why is in `docs/gpu.md`.

pub mod answer;
pub mod arguments;
pub mod bench;
mod child;
mod fit;
pub mod kernel_maker;
mod kernels;
mod makers;
mod pace;
mod pairs;
pub mod question;
mod spread;
mod subject;
pub mod supervision;

pub use child::ask;
pub use makers::{Engine, Makers, onnx};

/// Exit codes of the program.
pub mod exit {
    /// Everything was asked; what could not be asked says why.
    pub const ANSWERED: u8 = 0;
    /// A check failed.
    pub const FAILED: u8 = 1;
    /// The command line makes no sense.
    pub const MISUSE: u8 = 2;
    /// There is no GPU to ask.
    pub const NO_GPU: u8 = 3;
    /// Of a child whose device is lost.
    pub const LOST: u8 = 4;
}
