//! The handle of an open gpulet, and its sessions.

use std::sync::Arc;

use gpulet::{DeviceError, Partition};
use models::engine::{Batch, RunError, Session};
use models::{LoadOptions, ModelFiles, Signature};
use oip::Tensor;

use crate::gpulet::Gpulet;
use crate::ledger::Lease;
use crate::maker::StreamRef;
use crate::state::State;

/// The handle that opening a gpulet returns.
pub(crate) struct OpenGpulet {
    pub(crate) gpulet: Arc<Gpulet>,
    pub(crate) device: Arc<State>,
}

impl Partition for OpenGpulet {
    fn cores(&self) -> &[usize] {
        &[]
    }

    fn idle_priority(&self) -> bool {
        self.gpulet.idle_priority()
    }

    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        if let Some(reason) = self.device.failure() {
            return Err(DeviceError(format!("model `{}`: {reason}", files.name)));
        }
        let (session, lease) = self.device.make(files, options, StreamRef::of(&self.gpulet))?;
        let (gpulet, device) = (Arc::clone(&self.gpulet), Arc::clone(&self.device));
        Ok(Box::new(GpuletSession { session, _lease: lease, gpulet, device }))
    }
}

/// A session that keeps its gpulet open. Fields drop in this order.
struct GpuletSession {
    session: Box<dyn Session>,
    _lease: Lease,
    gpulet: Arc<Gpulet>,
    device: Arc<State>,
}

impl GpuletSession {
    fn device_failed(&self, reason: &str) -> RunError {
        self.device.fail(reason);
        RunError::DeviceFailed(self.device.failure().unwrap_or_else(|| reason.to_owned()))
    }
}

impl Session for GpuletSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        if let Some(reason) = self.device.failure() {
            return Err(RunError::DeviceFailed(reason));
        }
        match self.session.run(batch) {
            // Only the stream knows whether the device failed too.
            Err(RunError::Engine(reason)) => Err(match self.gpulet.stream().is_idle() {
                Err(error) if error.is_sticky() => {
                    self.device_failed(&format!("{error} while a batch ran: {reason}"))
                }
                _ => RunError::Engine(reason),
            }),
            // The engine's libraries know it, even if the stream does not.
            Err(RunError::DeviceFailed(reason)) => Err(self.device_failed(&reason)),
            result => result,
        }
    }

    fn signature(&self) -> &Signature {
        self.session.signature()
    }

    fn engine(&self) -> &'static str {
        self.session.engine()
    }

    fn settles_each_size(&self) -> bool {
        self.session.settles_each_size()
    }

    fn trim(&mut self) {
        self.session.trim();
    }
}
