//! What makes sessions for gpulets: an engine that runs on a given stream.

use std::sync::Arc;

use gpulet::DeviceError;
use models::engine::Session;
use models::{LoadOptions, ModelFiles};

use crate::driver::Stream;
use crate::gpulet::Gpulet;
use crate::ledger::Need;
use crate::units::UnitRange;

/// The stream of a gpulet, for an engine to run on. It keeps the gpulet open.
#[derive(Clone)]
pub struct StreamRef {
    gpulet: Arc<Gpulet>,
}

impl StreamRef {
    pub(crate) fn of(gpulet: &Arc<Gpulet>) -> Self {
        Self { gpulet: Arc::clone(gpulet) }
    }

    /// The driver's number for the device.
    pub fn device(&self) -> i32 {
        self.gpulet.ordinal()
    }

    /// The stream as libraries take it (`CUstream`, which is `cudaStream_t`). All work of a session must use it: work on
    /// the null stream runs on every SM of the device.
    pub fn address(&self) -> usize {
        self.gpulet.stream().address()
    }

    /// The stream, for our own kernels.
    pub fn stream(&self) -> &Stream {
        self.gpulet.stream()
    }

    /// Units of the gpulet.
    pub fn units(&self) -> UnitRange {
        self.gpulet.units()
    }

    /// SMs that the driver assigned to the gpulet.
    pub fn sms(&self) -> u32 {
        self.gpulet.sms()
    }
}

/// Makes sessions that run on a given stream.
pub trait SessionMaker: Send + Sync {
    /// Makes a session whose `run` returns only after its work has finished. Called for one session at a time per
    /// device.
    ///
    /// # Errors
    /// Names the model and the problem.
    fn make(
        &self,
        files: &ModelFiles,
        options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError>;

    /// Device memory that a session is expected to take. What it really takes is measured afterwards. By default the
    /// weights have the size of the file, and the arena is unknown.
    fn need(&self, files: &ModelFiles, options: &LoadOptions) -> Need {
        let _ = options;
        Need { weights: u64::try_from(files.bytes.len()).unwrap_or(u64::MAX), arena: 0 }
    }
}
