//! Telemetry of the server over OTLP, the protocol of OpenTelemetry: traces, metrics and logs, over gRPC or HTTP.
//!
//! Requests never wait for telemetry. A request that has ended is offered to the [`Exporter`], which decides whether it is
//! kept ([`sampling`]) and puts it into a bounded queue. A task makes spans of the kept requests and sends them in batches. If the
//! collector is slow or does not answer, the queue fills, and further spans are dropped and counted ([`Statistics`]).
//!
//! Spans are made from ended requests, and not recorded while a request runs, because the decision to keep a request depends on
//! how it ended. So this crate uses the messages of OTLP, and not the OpenTelemetry SDK.

#![forbid(unsafe_code)]

mod attribute;
mod context;
#[cfg(test)]
mod example;
mod export;
mod exporter;
mod ids;
mod logs;
mod metrics;
mod request;
mod resource;
pub mod sampling;
mod settings;
mod signal;
mod state;
mod statistics;
mod traces;
mod unix_time;

pub use context::{InvalidTraceParent, Parent, TraceContext};
pub use export::{InvalidEndpoint, check_connection};
pub use exporter::{Exporter, Sources};
pub use ids::{IdSource, SpanId, TraceId};
pub use logs::{LogLayer, LogRecords, log_layer};
pub use metrics::RenderMetrics;
pub use request::{Batch, BatchId, Ended, Outcome, PipelineStage, Request, Stages, Transport};
pub use resource::Resource;
pub use settings::{Headers, LogLevel, Protocol, Settings};
pub use signal::SignalName;
pub use state::TraceState;
pub use statistics::{Dropped, SignalStatistics, Statistics};
