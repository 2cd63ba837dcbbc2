//! An open gpulet: a context on its units, sessions on its stream.
//!
//! Everything that can still use the stream owns a share of the gpulet: the handle that was opened, every session, and
//! every [`StreamRef`] that an engine keeps. When the last share is dropped the context goes to rest, so that sessions
//! end before the stream and the stream before the context, in whatever order owners let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpulet::{DeviceError, Partition};
use models::engine::{Batch, RunError, Session};
use models::{LoadOptions, ModelFiles, Signature};
use oip::Tensor;
use serde::Serialize;

use crate::device::State;
use crate::driver::Stream;
use crate::idle::UnitContext;
use crate::ledger::Lease;
use crate::maker::StreamRef;
use crate::units::UnitRange;

/// What a gpulet did, by our own clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuletReadings {
    /// Number of its lane.
    pub lane: u32,
    /// First unit.
    pub first_unit: u32,
    /// Units.
    pub units: u32,
    /// SMs that the driver gave it.
    pub sms: u32,
    /// Time in which batches ran, copies included.
    pub busy: Duration,
    /// Batches that ran, failed ones included.
    pub batches: u64,
}

/// A gpulet as its owners share it.
pub(crate) struct Gpulet {
    lane: u32,
    number: u64,
    busy_ns: AtomicU64,
    batches: AtomicU64,
    context: Arc<UnitContext>,
    device: Arc<State>,
}

impl Gpulet {
    pub(crate) fn new(device: &Arc<State>, lane: u32, number: u64, context: Arc<UnitContext>) -> Arc<Self> {
        let (busy_ns, batches) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { lane, number, busy_ns, batches, context, device: Arc::clone(device) })
    }

    pub(crate) fn device(&self) -> &Arc<State> {
        &self.device
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.context.stream
    }

    pub(crate) fn units(&self) -> UnitRange {
        self.context.units
    }

    pub(crate) fn sms(&self) -> u32 {
        self.context.sms
    }

    pub(crate) fn readings(&self) -> GpuletReadings {
        GpuletReadings {
            lane: self.lane,
            first_unit: self.units().first(),
            units: self.units().count(),
            sms: self.sms(),
            busy: Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed)),
            batches: self.batches.load(Ordering::Relaxed),
        }
    }

    fn ran_for(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(time, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// The engine itself says that the device is lost: its libraries were told, and the stream may know nothing of it.
    fn give_up(&self, said: String) -> RunError {
        self.device.lose(&said);
        RunError::Lost(self.device.lost().unwrap_or(said))
    }

    /// What an engine's failure means: the device may be lost, which only its stream tells.
    fn explain(&self, said: String) -> RunError {
        match self.stream().is_idle() {
            Err(error) if error.is_sticky() => {
                self.device.lose(&format!("{error} while a batch ran: {said}"));
                RunError::Lost(self.device.lost().unwrap_or(said))
            }
            _ => RunError::Engine(said),
        }
    }
}

impl Drop for Gpulet {
    fn drop(&mut self) {
        self.device.closed(self.number);
        self.device.rest(Arc::clone(&self.context));
    }
}

/// The handle that opening a gpulet gives.
pub(crate) struct OpenGpulet {
    pub(crate) gpulet: Arc<Gpulet>,
}

impl Partition for OpenGpulet {
    fn cores(&self) -> &[usize] {
        &[]
    }

    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        let device = &self.gpulet.device;
        if let Some(reason) = device.lost() {
            return Err(DeviceError(format!("model `{}`: {reason}", files.name)));
        }
        let (session, lease) = device.make(files, options, StreamRef::of(&self.gpulet))?;
        Ok(Box::new(GpuletSession { session, _lease: lease, gpulet: Arc::clone(&self.gpulet) }))
    }
}

/// A session that keeps its gpulet open. The order of the fields is the order in which they end.
struct GpuletSession {
    session: Box<dyn Session>,
    _lease: Lease,
    gpulet: Arc<Gpulet>,
}

impl Session for GpuletSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        if let Some(reason) = self.gpulet.device.lost() {
            return Err(RunError::Lost(reason));
        }
        let begun = Instant::now();
        let result = self.session.run(batch);
        self.gpulet.ran_for(begun.elapsed());
        match result {
            Err(RunError::Engine(said)) => Err(self.gpulet.explain(said)),
            Err(RunError::Lost(said)) => Err(self.gpulet.give_up(said)),
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
