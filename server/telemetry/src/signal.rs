//! Signals of telemetry, and where a collector takes them.

use std::fmt;

/// A signal of telemetry, as OpenTelemetry divides it.
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
    pub(crate) fn http_path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }

    /// Method of its export over gRPC.
    pub(crate) fn grpc_path(self) -> &'static str {
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
