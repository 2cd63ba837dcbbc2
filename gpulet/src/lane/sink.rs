//! Where the reports of lanes go.

use super::batch::LaneReport;

/// Receives the reports of lanes. Called on the lane's thread, or on that of a caller that runs a batch itself; must not block.
pub trait LaneSink: Send + Sync + 'static {
    /// A batch ended.
    fn report(&self, report: LaneReport);
    /// The lane's thread ended without a request to stop.
    fn failed(&self, lane: u32);
}
