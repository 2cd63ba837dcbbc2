//! The report of a run against a live server. `tessera load --json` writes it as JSON, `tessera load compare` reads it.

mod read;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use sim::Capacity;

pub use read::{FORMAT, ReadError};

/// A run against a live server. Times are in milliseconds or seconds as the names say; rates are per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the layout; 1.
    pub format: u32,
    /// Version of the program that measured.
    pub version: String,
    /// Name of the workload.
    pub workload: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// What was measured.
    pub target: Target,
    /// How requests were sent.
    pub driven: Driven,
    /// When the first request was due, UTC, RFC 3339.
    pub started: String,
    /// Seconds of warm-up, which the figures leave out.
    pub warmup_s: f64,
    /// Seconds that the figures cover: from the end of the warm-up until the last request was due.
    pub measured_s: f64,
    /// Whether the run was stopped early. The figures cover the time until then.
    pub interrupted: bool,
    /// All models together, without those of best effort if there are others.
    pub total: Figures,
    /// Models in the order of the workload.
    pub models: Vec<ModelFigures>,
    /// The stages of an open loop, warm-up included.
    pub stages: Vec<StageFigures>,
    /// One per second from the start, including the warm-up.
    pub seconds: Vec<Second>,
    /// Whether this client could keep up.
    pub client: Client,
    /// The highest sustained rate, if it was searched. The figures are then those of the run at that rate.
    #[serde(default)]
    pub capacity: Option<Capacity>,
    /// The first message for each reason of a rejection or a failure, from the server or this client.
    #[serde(default, rename = "said")]
    pub messages: BTreeMap<String, String>,
    /// Where the time of single requests after the warm-up was spent. Kept only on request, and only of servers that report
    /// it.
    #[serde(skip)]
    pub timings: Vec<crate::timing::Timing>,
}

/// The server that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its address.
    pub url: String,
    /// `http`, `http2` or `grpc`.
    pub protocol: String,
    /// How tensors travelled: `binary` or `json`.
    pub tensors: String,
    /// Its name and version; empty if it does not report them.
    pub server: String,
}

/// How requests were sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "loop")]
pub enum Driven {
    /// At predetermined times, independent of the server. Latency counts from these times.
    Open,
    /// Each when another one was answered. Does not show how a server copes with more clients.
    Closed {
        /// Requests in flight.
        concurrency: u32,
    },
}

/// Requests, answers and latencies. Requests count at the time they were due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Requests that were due.
    pub offered: u64,
    /// Correct answers.
    pub answered: u64,
    /// Correct answers in time.
    pub good: u64,
    /// Requests that the server rejected under overload (429, 503, 504 and their gRPC counterparts), by its reason.
    pub refused: BTreeMap<String, u64>,
    /// Requests that failed in another way, by reason: no connection, no answer in time, a client's error, or an answer that
    /// contradicts the model's metadata or the expected values.
    pub failed: BTreeMap<String, u64>,
    /// Requests per second that were due.
    pub offered_rate: f64,
    /// Correct answers in time per second.
    pub goodput: f64,
    /// Good by offered, 0 to 1; 1 if nothing was offered.
    pub attainment: f64,
    /// From the time a request was due to the end of its correct answer; none without correct answers.
    pub latency: Option<Latency>,
    /// From the time a request was sent to the end of its correct answer.
    pub service: Option<Latency>,
    /// From the time a request was due to the end of its rejection.
    pub refusal: Option<Latency>,
}

/// A distribution of times in milliseconds, precise to three digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of values.
    pub count: u64,
    /// Mean, in milliseconds.
    pub mean_ms: f64,
    /// 50th percentile (median).
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p99_9_ms: f64,
    /// The longest time.
    pub max_ms: f64,
    /// All of it, in microseconds: an HDR histogram (V2, deflated, base64).
    pub histogram: String,
}

/// One model of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelFigures {
    /// Its name in the workload.
    pub name: String,
    /// Its name on the server.
    pub served_as: String,
    /// Latency objective in milliseconds.
    pub slo_ms: f64,
    /// Its requests.
    pub figures: Figures,
    /// Batches by size, from the server's own statistics; empty if it has none.
    pub batches: Vec<BatchSize>,
    /// Where the time of answered requests was spent, from the server's own statistics; none if it has none.
    #[serde(default)]
    pub server: Option<ServerTimes>,
}

/// Where a server spent the time of answered requests, as means in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerTimes {
    /// Requests that it answered, including the warm-up.
    pub requests: u64,
    /// From arrival to answer.
    pub total_ms: f64,
    /// In the queue.
    pub queue_ms: f64,
    /// Between the queue and the model.
    pub input_ms: f64,
    /// In the model.
    pub compute_ms: f64,
    /// Between the model and the answer.
    pub output_ms: f64,
}

/// Batches of one size that a server ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchSize {
    /// Rows per batch.
    pub rows: u64,
    /// Number of batches.
    pub batches: u64,
    /// Mean time of a batch in the model, in milliseconds.
    pub compute_ms: f64,
    /// Mean time of a batch outside the model: hand-over, gathering and scattering of rows.
    #[serde(default)]
    pub overhead_ms: f64,
}

/// One stage of an open loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageFigures {
    /// Seconds from the start of the run to its start.
    pub from_s: f64,
    /// Seconds from the start of the run to its end.
    pub to_s: f64,
    /// Multiple of the workload's own rate at its start.
    pub scale_from: f64,
    /// The same at its end.
    pub scale_to: f64,
    /// Its requests, all models together.
    pub figures: Figures,
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds from the start of the run to its start.
    pub t: u64,
    /// Requests that were due.
    pub offered: u64,
    /// Of these, answered correctly.
    pub answered: u64,
    /// Of these, answered correctly and in time.
    pub good: u64,
    /// Of these, rejected by the server under overload.
    pub refused: u64,
    /// Of these, failed in another way.
    pub failed: u64,
    /// Median of the correct answers, in milliseconds; none without correct answers.
    pub p50_ms: Option<f64>,
    /// 90th percentile of the correct answers.
    #[serde(default)]
    pub p90_ms: Option<f64>,
    /// 99th percentile of the correct answers.
    pub p99_ms: Option<f64>,
    /// Mean of the correct answers.
    #[serde(default)]
    pub mean_ms: Option<f64>,
    /// 99th percentile of the correct answers, in multiples of their model's SLO.
    pub p99_of_slo: Option<f64>,
    /// 99th percentile of the delay between due and sent, without waits for a free connection; none if nothing was sent.
    pub send_error_p99_ms: Option<f64>,
    /// Whether this client kept up, so that the second describes the server.
    pub kept_up: bool,
    /// Latencies of its correct answers, as in [`Latency::histogram`], for the HDR log; kept only on request.
    #[serde(skip)]
    pub histogram: Option<String>,
}

/// The client that measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Number of sending threads.
    pub threads: u32,
    /// Number of connections that were opened.
    pub connections: u64,
    /// Requests that were due and had to wait because every allowed connection was busy. The wait is part of their
    /// latency.
    pub held: u64,
    /// Delay between due and sent, without waits for a free connection.
    pub send_error: Option<Latency>,
    /// Share of the sending threads' time that they were busy, 0 to 1.
    pub busy: f64,
    /// Processor time of the sending threads per request, in microseconds.
    pub cpu_us: f64,
    /// When this client first failed to keep up, UTC, RFC 3339. Later results do not describe the server.
    pub late_from: Option<String>,
    /// Number of seconds in which it failed to keep up.
    pub late_seconds: u64,
}
