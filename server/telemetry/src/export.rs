//! Export to the collector, the same for every signal: a bounded queue, batches, attempts.

mod backoff;
mod client;
mod codec;
mod delivery;
mod failure;
mod worker;

use std::fmt;

use tokio::time::Instant;

pub(crate) use client::Client;
pub use client::InvalidEndpoint;
pub(crate) use delivery::Delivery;
pub(crate) use worker::{Flush, Worker};

/// A kind of telemetry, as OpenTelemetry divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalName {
    /// Spans of requests and batches.
    Traces,
    /// Data points.
    Metrics,
    /// Log records.
    Logs,
}

impl SignalName {
    /// Every signal.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    /// Path of its export over HTTP.
    fn http_path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }

    /// Method of its export over gRPC.
    fn grpc_path(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }
}

impl fmt::Display for SignalName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        })
    }
}

/// What the collector did not take of a batch that it accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejected {
    count: u64,
    message: String,
}

impl Rejected {
    /// `None` if everything was taken and the collector has nothing to say.
    pub(crate) fn new(count: i64, message: String) -> Option<Self> {
        let count = u64::try_from(count).unwrap_or_default();
        (count > 0 || !message.is_empty()).then_some(Self { count, message })
    }
}

/// How the items of a signal become messages.
pub(crate) trait Signal: Send + 'static {
    /// What waits in the queue.
    type Item: Send + 'static;
    const NAME: SignalName;

    /// When there is something to export even if no item arrives.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// The encoded export request, and how many spans, data points or records it has. `all`: export what would wait for more, too.
    fn encode(&mut self, items: Vec<Self::Item>, all: bool) -> (u64, Vec<u8>);

    /// What the response says about records that were not taken.
    fn rejected(response: &[u8]) -> Option<Rejected>;
}
