//! Gpulets in processes of their own.
//!
//! [`ProcessDevice`] is a device like any other to whoever uses it. Its gpulets run in another process, one for each
//! gpulet or one for the whole device ([`WorkerScope`]), which is this same program started again: [`serve`] is the
//! other end. A process that dies, hangs, or answers nonsense takes only its own gpulets with it: runs that it had
//! under way end as [`RunError::Lost`](models::engine::RunError::Lost), every other gpulet of it is reported to its
//! watch once, and the next `open` starts a new one. Nothing is restarted by itself: when and how often is a decision.
//!
//! Between the processes there is a socket for each conversation: one to open gpulets, one for each gpulet to load
//! models, one for each session to run batches, so a load never delays a batch. Messages are small and bounded;
//! tensors and model files lie in shared memory, whose files go over with the messages.
//!
//! A session learns how long its runs take, and the process is ended when a run takes far longer ([`Limits`]), or when
//! all of them do for half a second on units that it shares with nobody, not counting the time for which the machine
//! had no core for it, and allowing for the batches of other gpulets where those can be before it.
//!
//! Linux only: files in memory that are sealed against shrinking, and signals to a process that cannot hit another
//! one, are not to be had elsewhere.

mod child;
mod core_time;
mod device;
mod limits;
mod memory;
mod names;
mod neighbours;
mod patience;
mod process;
mod session;
mod slowness;
mod wire;

pub use child::serve;
pub use device::{ProcessDevice, WorkerScope};
pub use limits::{Limits, LimitsError};
pub use process::WorkerCommand;
pub use wire::Hello;
