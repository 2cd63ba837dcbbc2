//! How the requests of a run are sent.

use workload::Stages;

/// How requests are sent.
#[derive(Clone, Debug)]
pub enum Drive {
    /// Open loop: when they are due, at the workload's times scaled by stages.
    Open(Stages),
    /// Closed loop: a constant number in flight.
    Closed {
        /// Number of requests in flight.
        concurrency: u32,
        /// Length of the run in nanoseconds.
        time: u64,
    },
}
