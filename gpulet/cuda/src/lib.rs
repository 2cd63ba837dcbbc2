//! NVIDIA GPUs as devices whose gpulets are made, resized and closed while they serve.
//!
//! A gpulet is a green context: a set of SMs inside this process with one stream of work. Another size is another
//! context beside the old one, made in milliseconds, where systems that share GPUs by processes start a process.
//!
//! The way in is [`probe`], which says what GPUs there are or which absence is in the way; [`choose`] picks the way
//! of sharing one; [`CudaDevice::take`] makes it a [`Device`](gpulet::Device). Sessions are made by whoever implements
//! [`SessionMaker`]: [`OnnxMaker`] for ONNX models. Nothing here needs a GPU or a CUDA toolkit to be built, and the
//! tests run against a driver in plain memory; statements marked **\[open\]** are the driver's documentation and are to
//! be confirmed on a GPU, by the tests that are ignored without one.

mod activity;
mod backend;
mod check;
mod device;
pub mod driver;
mod idle;
mod ledger;
mod maker;
mod onnx;
mod partition;
mod probe;
mod readings;
mod units;

pub use activity::{Activity, ActivityWatch, NoActivity};
pub use backend::{
    Backend, BackendError, Choice, MPS_FOLDER, MPS_FOLDER_VARIABLE, MPS_SHARE_VARIABLE, MpsAbsent,
    UnknownBackend, choose, mps_daemon,
};
pub use device::{CudaDevice, CudaOptions};
pub use ledger::{Budget, Lease, Ledger, MemoryRefusal, MemoryState, Need};
pub use maker::{SessionMaker, StreamRef};
pub use onnx::{Cudnn, OnnxMaker, OnnxOptions, lend};
pub use partition::GpuletReadings;
pub use probe::{Found, GreenMissing, ProbeError, dotted, probe};
pub use readings::{Instance, Monitor, MonitorError, Readings};
pub use units::{Granularity, Grid, GridError, NoSuchUnits, UnitRange};

/// Variables that the environment of a process must hold before it takes a GPU. With the driver's default of 8
/// hardware queues, streams of more than 8 gpulets wait for each other.
pub const ENVIRONMENT: [(&str, &str); 1] = [("CUDA_DEVICE_MAX_CONNECTIONS", "32")];
