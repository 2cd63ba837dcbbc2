//! Metrics of requests that go to other nodes.

use metrics::{Counter, Gauge};

use super::names;

/// How a request that was forwarded to a node ended there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardOutcome {
    /// The node answered it.
    Answered,
    /// The node answered with an error.
    Refused,
    /// The node could not be reached, or its connection broke.
    Unreachable,
    /// The time of the request was over before the node answered.
    Expired,
    /// Too many requests were being forwarded.
    Limit,
}

impl ForwardOutcome {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Answered, "answered"),
        (Self::Refused, "refused"),
        (Self::Unreachable, "unreachable"),
        (Self::Expired, "expired"),
        (Self::Limit, "limit"),
    ];
}

/// Metrics of one other node.
pub struct NodeMetrics {
    forwarded: [Counter; ForwardOutcome::ALL.len()],
    connected: Gauge,
}

impl NodeMetrics {
    /// Registers with the current recorder.
    pub fn new(node: &str) -> Self {
        let forwarded = ForwardOutcome::ALL.map(|(_, word)| {
            metrics::counter!(
                names::FORWARDED.name, names::NODE => node.to_owned(), names::FORWARD_OUTCOME => word
            )
        });
        let connected = metrics::gauge!(names::NODE_CONNECTED.name, names::NODE => node.to_owned());
        connected.set(0.0);
        Self { forwarded, connected }
    }

    /// Counts a request that was to be answered by the node.
    pub fn forwarded(&self, outcome: ForwardOutcome) {
        if let Some(counter) = self.forwarded.get(outcome as usize) {
            counter.increment(1);
        }
    }

    /// Sets whether the node tells its signals.
    pub fn connected(&self, connected: bool) {
        self.connected.set(if connected { 1.0 } else { 0.0 });
    }
}
