//! Checks what gpulets can do on an NVIDIA GPU: one subcommand per check, one JSON line per fact.
//!
//! Made for a machine that has a GPU and nothing else: one binary, with models next to it. The process that the user
//! starts touches no GPU. It runs every check in a child process, which a fault or a hang may end and which is killed when
//! its time is over. `docs/gpu.md` says what is checked and why.

pub mod arguments;
pub mod bench;
pub mod check;
pub mod checks;
pub mod child;
mod fit;
pub mod kernel_maker;
mod kernels;
mod makers;
pub mod operator;
mod pairs;
pub mod report;
mod spread;
mod subject;
pub mod supervision;
mod tasks;
mod timing;

pub use makers::{Engine, Makers, onnx};

/// Exit codes of the program.
pub mod exit {
    /// All checks ran; facts without a value say why.
    pub const SUCCESS: u8 = 0;
    /// A fact is not as required.
    pub const FAILED: u8 = 1;
    /// The command line is wrong.
    pub const MISUSE: u8 = 2;
    /// There is no GPU to check.
    pub const NO_GPU: u8 = 3;
    /// In a child: the device failed.
    pub const DEVICE_FAILED: u8 = 4;
}
