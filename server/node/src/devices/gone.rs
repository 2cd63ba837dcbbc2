//! A lane whose thread ended unasked is as lost as one whose process did: it is told of where such losses are.

use std::sync::Arc;

use gpulet::{LaneReport, LaneSink, PartitionWatch};

/// Passes a lane's reports on, and tells whoever starts lost gpulets again when its thread ended.
pub struct GoneSink {
    next: Arc<dyn LaneSink>,
    watch: Arc<dyn PartitionWatch>,
}

impl GoneSink {
    /// In front of whoever hears of a lane's batches.
    pub fn before(next: Arc<dyn LaneSink>, watch: Arc<dyn PartitionWatch>) -> Arc<dyn LaneSink> {
        Arc::new(Self { next, watch })
    }
}

impl LaneSink for GoneSink {
    fn report(&self, report: LaneReport) {
        self.next.report(report);
    }

    fn failed(&self, lane: u32) {
        // The router first: it must have forgotten this lane before another of its number comes.
        self.next.failed(lane);
        self.watch.failed(lane, "its thread panicked");
    }
}
