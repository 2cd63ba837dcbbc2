//! Metrics of requests that go to other nodes, and of the agent of a fleet.

use metrics::{Counter, Gauge};
use router::GatherCounts;

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

/// Metrics of the agent.
pub struct AgentMetrics {
    running: Gauge,
    restarts: Counter,
}

impl AgentMetrics {
    /// Registers with the current recorder.
    pub fn new() -> Self {
        Self {
            running: metrics::gauge!(names::AGENT_RUNNING.name),
            restarts: metrics::counter!(names::AGENT_RESTARTS.name),
        }
    }

    /// Sets whether the agent runs.
    pub fn running(&self, running: bool) {
        self.running.set(if running { 1.0 } else { 0.0 });
    }

    /// Counts a restart.
    pub fn restarted(&self) {
        self.restarts.increment(1);
    }
}

impl Default for AgentMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Metrics of requests that a picker put into batches.
pub struct GatherMetrics {
    complete: Counter,
    incomplete: Counter,
    too_many: Counter,
}

impl GatherMetrics {
    /// Registers with the current recorder.
    pub fn new() -> Self {
        let batches = |word: &'static str| metrics::counter!(names::MARKED_BATCHES.name, names::FORWARD_OUTCOME => word);
        Self {
            complete: batches("complete"),
            incomplete: batches("incomplete"),
            too_many: ignored_batch_marks("too_many"),
        }
    }

    /// Sets the counters to what the router counted since its start.
    pub fn update(&self, counts: GatherCounts) {
        self.complete.absolute(counts.complete);
        self.incomplete.absolute(counts.incomplete);
        self.too_many.absolute(counts.too_many);
    }
}

impl Default for GatherMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The counter of marks that are ignored because they are malformed.
pub fn malformed_batch_marks() -> Counter {
    ignored_batch_marks("malformed")
}

fn ignored_batch_marks(cause: &'static str) -> Counter {
    metrics::counter!(names::BATCH_MARKS_IGNORED.name, names::CAUSE => cause)
}
