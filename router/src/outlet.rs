//! How lanes and leaving clients reach the actor: a channel that never blocks them. It is bounded by what can be
//! in it: one report a batch in flight (invariant R5) and one cancellation a request.

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
