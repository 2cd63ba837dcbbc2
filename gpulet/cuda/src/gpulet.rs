//! An open gpulet: the context of its units and its counters.
//!
//! Everything that can still use the stream holds a reference to the gpulet: the handle that was opened, every session,
//! and every [`StreamRef`](crate::StreamRef) that an engine keeps. The context becomes idle when the last one is
//! dropped. So sessions end before the stream and the stream before the context, in whatever order owners drop them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::driver::Stream;
use crate::idle_contexts::UnitContext;
use crate::units::UnitRange;

/// What a gpulet did, measured on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuletReadings {
    /// Number of its lane.
    pub lane: u32,
    /// First unit.
    pub first_unit: u32,
    /// Number of units.
    pub units: u32,
    /// SMs that the driver assigned.
    pub sms: u32,
    /// Time in which batches ran, including copies.
    pub busy: Duration,
    /// Batches that ran, including failed ones.
    pub batches: u64,
}

/// The device of a gpulet, which gets the context back.
pub(crate) trait Owner: Send + Sync {
    /// The driver's number for the device.
    fn ordinal(&self) -> i32;

    /// Called once, when the last reference to gpulet `number` was dropped.
    fn closed(&self, number: u64, context: Arc<UnitContext>);
}

/// A gpulet, shared by its owners.
pub(crate) struct Gpulet {
    lane: u32,
    number: u64,
    busy_ns: AtomicU64,
    batches: AtomicU64,
    context: Arc<UnitContext>,
    owner: Arc<dyn Owner>,
}

impl Gpulet {
    pub(crate) fn new(owner: Arc<dyn Owner>, lane: u32, number: u64, context: Arc<UnitContext>) -> Arc<Self> {
        let (busy_ns, batches) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { lane, number, busy_ns, batches, context, owner })
    }

    pub(crate) fn ordinal(&self) -> i32 {
        self.owner.ordinal()
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

    /// Counts a batch.
    pub(crate) fn ran(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(time, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Gpulet {
    fn drop(&mut self) {
        self.owner.closed(self.number, Arc::clone(&self.context));
    }
}
