//! The channel for reports of lanes and cancellations, which never blocks the sender. Its content is bounded by one
//! report for each batch in flight (invariant R5) and one cancellation for each request.

use gpulet::{LaneReport, LaneSink};
use router_core::RequestId;
use tokio::sync::mpsc;

pub(crate) enum Urgent {
    Report(LaneReport),
    LaneThreadEnded(u32),
    Cancel(RequestId),
}

#[derive(Clone)]
pub(crate) struct Outlet(pub mpsc::UnboundedSender<Urgent>);

impl LaneSink for Outlet {
    fn report(&self, report: LaneReport) {
        // Without an actor there are no requests, and no receiver for the report.
        let _ = self.0.send(Urgent::Report(report));
    }

    fn failed(&self, lane: u32) {
        let _ = self.0.send(Urgent::LaneThreadEnded(lane));
    }
}
