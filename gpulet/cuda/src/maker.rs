//! Who makes sessions for gpulets: an engine that takes a stream.

use std::sync::Arc;

use gpulet::DeviceError;
use models::engine::Session;
use models::{LoadOptions, ModelFiles};

use crate::driver::Stream;
use crate::ledger::Need;
use crate::partition::Gpulet;
use crate::units::UnitRange;

/// The stream of a gpulet, for an engine to run on. The gpulet stays open as long as one of these exists.
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
        self.gpulet.device().ordinal()
    }

    /// The stream as libraries take it (`CUstream`, which is `cudaStream_t`). All work of a session must name it: what
    /// goes to the null stream runs on every SM of the device.
    pub fn address(&self) -> usize {
        self.gpulet.stream().address()
    }

    /// The stream for kernels of our own.
    pub fn stream(&self) -> &Stream {
        self.gpulet.stream()
    }

    /// Units of the gpulet.
    pub fn units(&self) -> UnitRange {
        self.gpulet.units()
    }

    /// SMs that the driver gave it.
    pub fn sms(&self) -> u32 {
        self.gpulet.sms()
    }
}

/// Makes sessions that run on a given stream.
pub trait SessionMaker: Send + Sync {
    /// Makes a session, whose every run is over when it returns. One is made at a time on a device.
    ///
    /// # Errors
    /// Names the model and says what was wrong.
    fn make(
        &self,
        files: &ModelFiles,
        options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError>;

    /// Device memory that a session is expected to take; what it does take is measured afterwards. Where nothing else
    /// is known a model's weights are its file, and an arena is not foreseen.
    fn need(&self, files: &ModelFiles, options: &LoadOptions) -> Need {
        let _ = options;
        Need { weights: u64::try_from(files.bytes.len()).unwrap_or(u64::MAX), arena: 0 }
    }
}
