//! Gpulets in worker processes.
//!
//! [`ProcessDevice`] implements the same traits as every other device. Its gpulets run in worker processes, one per
//! gpulet or one per device ([`WorkerScope`]). A worker is this same program, started again; [`serve`] is its `main`.
//! A worker that dies, hangs or sends invalid messages takes only its own gpulets with it. Its running batches end as
//! [`RunError::DeviceFailed`](models::engine::RunError::DeviceFailed), the watch of each other gpulet is told once, and the next `open`
//! starts a new worker. This crate restarts nothing: supervision decides when and how often.
//!
//! The processes talk over sockets: one per worker to open gpulets, one per gpulet to load models, and one per session
//! to run batches, so a load never delays a batch. Messages are small and bounded. Tensors and model files are in
//! shared memory, whose file descriptors are passed with the messages.
//!
//! A session learns how long its batches take. It ends the worker when one batch takes far longer than expected
//! ([`Limits`]), or when all batches are slow for half a second on units that the gpulet has to itself. Time for which
//! the worker's threads waited for a core does not count, and neither do batches of co-located gpulets.
//!
//! Linux only: it needs sealed memory files and signals that cannot reach a recycled process id.

mod child;
mod contention;
mod core_time;
mod device;
mod gpulet;
mod limits;
mod memory;
mod process;
mod run_timeout;
mod session;
mod slowness;
mod tensors;
mod wire;

pub use child::serve;
pub use device::{ProcessDevice, WorkerScope};
pub use limits::{Limits, LimitsError};
pub use process::WorkerCommand;
pub use wire::Hello;
