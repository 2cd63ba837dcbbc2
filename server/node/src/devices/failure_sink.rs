//! Reports a lane whose thread ended unexpectedly, as for a lane whose process ended.

use std::sync::Arc;

use gpulet::{LaneReport, LaneSink, PartitionWatch};

/// Forwards a lane's reports, and notifies the supervisor when its thread ends unexpectedly.
pub struct FailureSink {
    next: Arc<dyn LaneSink>,
    watch: Arc<dyn PartitionWatch>,
}

impl FailureSink {
    /// A sink in front of `next`.
    pub fn before(next: Arc<dyn LaneSink>, watch: Arc<dyn PartitionWatch>) -> Arc<dyn LaneSink> {
        Arc::new(Self { next, watch })
    }
}

impl LaneSink for FailureSink {
    fn report(&self, report: LaneReport) {
        self.next.report(report);
    }

    fn failed(&self, lane: u32) {
        // The router must remove this lane before a new one with its number starts.
        self.next.failed(lane);
        self.watch.failed(lane, "its thread panicked");
    }
}
