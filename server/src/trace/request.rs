//! The trace of a request while it runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use router::Timing;

use super::record::{Origin, Record, Stage};
use super::writer::Sink;

/// The trace of one request. It is written when it is dropped.
pub struct Trace {
    record: Mutex<Option<Record>>,
    sink: Sink,
    origin: Origin,
}

impl Trace {
    pub(super) fn new(record: Record, sink: Sink, origin: Origin) -> Self {
        Self { record: Mutex::new(Some(record)), sink, origin }
    }

    /// Records that a stage was reached at `at`.
    pub fn reached(&self, stage: Stage, at: Instant) {
        let ns = self.origin.ns(at);
        if let Some(record) = &mut *self.lock() {
            record.timestamps.push((stage, ns));
        }
    }

    /// Records that the request with this id reached its model now.
    pub fn started(&self, request_id: &str) {
        if let Some(record) = &mut *self.lock() {
            request_id.clone_into(&mut record.request_id);
        }
        self.reached(Stage::RequestStart, Instant::now());
    }

    /// Records the stages of a request that the router took at `admitted`.
    pub fn ran(&self, admitted: Instant, timing: &Timing) {
        let mut at = admitted;
        self.reached(Stage::QueueStart, at);
        for (stage, span) in [
            (Stage::ComputeStart, timing.queue),
            (Stage::ComputeInputEnd, timing.batch_wait),
            (Stage::ComputeOutputStart, timing.compute),
            (Stage::ComputeEnd, timing.hand_back),
        ] {
            at = at.checked_add(span).unwrap_or(at);
            self.reached(stage, at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Record>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let record = self.lock().take();
        if let Some(record) = record {
            self.sink.put(record);
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

/// Records when the last byte of a response was taken: when it is dropped.
#[derive(Debug)]
pub struct SendEnd {
    trace: Arc<Trace>,
    end: Stage,
}

impl SendEnd {
    /// Records `start` now, and `end` when dropped.
    pub fn new(trace: Arc<Trace>, start: Stage, end: Stage) -> Self {
        trace.reached(start, Instant::now());
        Self { trace, end }
    }
}

impl Drop for SendEnd {
    fn drop(&mut self) {
        self.trace.reached(self.end, Instant::now());
    }
}
