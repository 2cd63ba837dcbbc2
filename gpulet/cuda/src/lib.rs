//! NVIDIA GPUs as devices whose gpulets are opened, resized and closed while they serve.
//!
//! A gpulet is a green context: a set of SMs inside this process, with one stream. A gpulet of another size is another
//! context, created in milliseconds; systems that share GPUs by processes start a process instead.
//!
//! [`probe`] lists the GPUs, or says what is missing. [`choose`] picks the way of sharing one, and
//! [`CudaDevice::take`] makes it a [`Device`](::gpulet::Device). A [`SessionMaker`] makes the sessions: [`OnnxMaker`] for
//! ONNX models. Building needs neither a GPU nor the CUDA toolkit, and the tests run against a fake driver. Statements
//! marked **\[open\]** come from the driver's documentation and have to be confirmed on a GPU, by the tests that are
//! ignored without one.

mod activity;
mod backend;
mod check;
mod device;
pub mod driver;
mod gpulet;
mod idle_contexts;
mod ledger;
mod maker;
mod onnx;
mod partition;
mod probe;
mod readings;
mod state;
mod units;

pub use activity::{Activity, ActivityWatch, NoActivity};
pub use backend::{
    Backend, BackendError, Choice, MPS_FOLDER, MPS_FOLDER_VARIABLE, MPS_SHARE_VARIABLE, MpsAbsent,
    UnknownBackend, choose, mps_daemon,
};
pub use device::CudaDevice;
pub use ledger::{MemoryState, Need};
pub use maker::{SessionMaker, StreamRef};
pub use onnx::{Cudnn, OnnxMaker, OnnxOptions, lend};
pub use probe::{Found, GreenMissing, ProbeError, dotted, probe};
pub use readings::{Instance, Monitor, MonitorError, Readings};
pub use state::CudaOptions;
pub use units::{Granularity, Grid, GridError, NoSuchUnits, UnitRange, device_type};

/// Environment variables that must be set before a process takes a GPU. With the driver's default of 8 hardware queues,
/// streams of more than 8 gpulets would wait for each other.
pub const ENVIRONMENT: [(&str, &str); 1] = [("CUDA_DEVICE_MAX_CONNECTIONS", "32")];
