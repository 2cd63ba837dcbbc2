//! Handles of the front end itself.

use metrics::{Counter, Gauge};

use super::names;
use crate::reason::Reason;

/// How a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The REST interface.
    Http,
    /// The gRPC interface.
    Grpc,
    /// A call of a Python model by another.
    Model,
    /// A row of a job.
    Job,
}

/// Metrics that belong to no model.
pub struct FrontMetrics {
    http: Vec<Counter>,
    grpc: Vec<Counter>,
    /// Requests being answered.
    pub in_flight: Gauge,
    /// Bytes of bodies held.
    pub body_bytes: Gauge,
}

impl FrontMetrics {
    /// Registers with the current recorder.
    pub fn new() -> Self {
        let refusals = |transport: &'static str| {
            let one = |&reason: &Reason| {
                metrics::counter!(
                    names::FRONT_REFUSALS.name,
                    names::TRANSPORT => transport,
                    names::REASON => reason.label()
                )
            };
            Reason::ALL.iter().map(one).collect()
        };
        Self {
            http: refusals("http"),
            grpc: refusals("grpc"),
            in_flight: metrics::gauge!(names::IN_FLIGHT.name),
            body_bytes: metrics::gauge!(names::BODY_BYTES.name),
        }
    }

    /// Counts one request answered with an error.
    pub fn refused(&self, transport: Transport, reason: Reason) {
        if let Some(counter) = self.of(transport).get(reason.index()) {
            counter.increment(1);
        }
    }

    /// The counter behind [`refused`](Self::refused), for callers that have neither requests nor reasons.
    pub fn refusals(&self, transport: Transport, reason: Reason) -> Counter {
        self.of(transport).get(reason.index()).cloned().unwrap_or_else(Counter::noop)
    }

    fn of(&self, transport: Transport) -> &[Counter] {
        match transport {
            Transport::Http => &self.http,
            Transport::Grpc => &self.grpc,
            // Their caller reports them.
            Transport::Model | Transport::Job => &[],
        }
    }
}

impl Default for FrontMetrics {
    fn default() -> Self {
        Self::new()
    }
}
