//! What a run against a live server found. Written as JSON by `tessera load --json`, read back by
//! `tessera load compare`.

mod read;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use sim::Capacity;

pub use read::{FORMAT, ReadError};

/// A run against a live server. Times are milliseconds or seconds as the names say, rates are a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Layout of this document; 1.
    pub format: u32,
    /// Version of the program that measured.
    pub version: String,
    /// Name of the workload.
    pub workload: String,
    /// What all chance derived from.
    pub seed: u64,
    /// What was measured.
    pub target: Target,
    /// How requests were sent.
    pub driven: Driven,
    /// When the first request was due, UTC, RFC 3339.
    pub started: String,
    /// Seconds at the start that the figures leave out.
    pub warmup_s: f64,
    /// Seconds that the figures are about: from the end of the warm-up until the last request was due.
    pub measured_s: f64,
    /// Whether somebody stopped the run before its end; the figures are about the time until then.
    pub interrupted: bool,
    /// All models together.
    pub total: Figures,
    /// Models in the order of the workload.
    pub models: Vec<ModelFigures>,
    /// The stages of an open loop, warm-up included.
    pub stages: Vec<StageFigures>,
    /// One for each second from the start on, warm-up included.
    pub seconds: Vec<Second>,
    /// Whether this client could keep up.
    pub client: Client,
    /// The highest rate that held, if it was looked for; the figures are then those of the run at that rate.
    #[serde(default)]
    pub capacity: Option<Capacity>,
    /// What the server, or this client, said first with each reason of a refusal or a failure.
    #[serde(default)]
    pub said: BTreeMap<String, String>,
    /// Where the time of single requests after the warm-up went; kept only if that was asked for, of servers that tell
    /// it.
    #[serde(skip)]
    pub timings: Vec<crate::timing::Timing>,
}

/// The server that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Where it was reached.
    pub url: String,
    /// `http`, `http2` or `grpc`.
    pub protocol: String,
    /// How tensors travelled: `binary` or `json`.
    pub tensors: String,
    /// What it calls itself, with its version; empty if it does not say.
    pub server: String,
}

/// How requests were sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "loop")]
pub enum Driven {
    /// At times that were fixed beforehand, whatever the server did. Latency counts from these times.
    Open,
    /// The next as soon as one was answered. Says nothing about how a server stands more clients.
    Closed {
        /// Requests in flight.
        concurrency: u32,
    },
}

/// Requests, answers and latencies. Requests count at the time when they were due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Requests that were due.
    pub offered: u64,
    /// Right answers.
    pub answered: u64,
    /// Right answers in time.
    pub good: u64,
    /// Requests that the server refused for its own good (429, 503, 504 and their gRPC counterparts), by its reason.
    pub refused: BTreeMap<String, u64>,
    /// Requests that failed in another way, by what happened: no connection, no answer in time, a client's error, an
    /// answer that was not what the model's metadata or the expected values say.
    pub failed: BTreeMap<String, u64>,
    /// Requests a second that were due.
    pub offered_rate: f64,
    /// Right answers in time a second.
    pub goodput: f64,
    /// Good by offered, 0 to 1; 1 if nothing was offered.
    pub attainment: f64,
    /// From when a request was due to the end of its right answer; none without right answers.
    pub latency: Option<Latency>,
    /// From when a request was sent to the end of its right answer.
    pub service: Option<Latency>,
    /// From when a request was due to the end of its refusal.
    pub refusal: Option<Latency>,
}

/// A distribution of times, exact to three digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Half take at most this long.
    pub p50_ms: f64,
    /// 90 % take at most this long.
    pub p90_ms: f64,
    /// 95 % take at most this long.
    pub p95_ms: f64,
    /// 99 % take at most this long.
    pub p99_ms: f64,
    /// 99.9 % take at most this long.
    pub p99_9_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// All of it, in microseconds: an HDR histogram (V2, deflated, base64).
    pub histogram: String,
}

/// One model of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelFigures {
    /// What the workload calls it.
    pub name: String,
    /// What the server calls it.
    pub served_as: String,
    /// Milliseconds that an answer may take.
    pub slo_ms: f64,
    /// Its requests.
    pub figures: Figures,
    /// Batches by size, from the server's own statistics; empty if it has none.
    pub batches: Vec<BatchSize>,
    /// Where the time of answered requests went, by the server's own statistics; none if it has none.
    #[serde(default)]
    pub server: Option<ServerTimes>,
}

/// Where a server says that the time of the requests went which it answered. Means, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerTimes {
    /// Requests that it answered, those of the warm-up included.
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
    /// Rows.
    pub rows: u64,
    /// Batches.
    pub batches: u64,
    /// Mean time that the model took for one.
    pub compute_ms: f64,
    /// Mean time that it took beside: hand-over to the model and back, gathering and dealing out of rows.
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
    /// Of these, answered rightly.
    pub answered: u64,
    /// Of these, answered rightly and in time.
    pub good: u64,
    /// Of these, refused by the server for its own good.
    pub refused: u64,
    /// Of these, failed in another way.
    pub failed: u64,
    /// Half of the right answers took at most so long; none without right answers.
    pub p50_ms: Option<f64>,
    /// 90 % of the right answers took at most so long.
    #[serde(default)]
    pub p90_ms: Option<f64>,
    /// 99 % of the right answers took at most so long.
    pub p99_ms: Option<f64>,
    /// Mean of the right answers.
    #[serde(default)]
    pub mean_ms: Option<f64>,
    /// 99 % of the right answers took at most this multiple of their model's SLO.
    pub p99_of_slo: Option<f64>,
    /// 99 % of the requests were sent at most so long after they were due, waits for a free connection left out; none
    /// if nothing was sent.
    pub send_error_p99_ms: Option<f64>,
    /// Whether this client kept up, so that the second is the server's.
    pub kept_up: bool,
    /// Latencies of its right answers, as in [`Latency::histogram`], for the HDR log; kept only if that was asked for.
    #[serde(skip)]
    pub histogram: Option<String>,
}

/// What is known of the client that measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Threads that sent.
    pub threads: u32,
    /// Connections that were opened.
    pub connections: u64,
    /// Requests that were due and had to wait because every allowed connection was busy. The wait is part of their
    /// latency.
    pub held: u64,
    /// How long after they were due requests were sent, waits for a free connection left out.
    pub send_error: Option<Latency>,
    /// Share of the sending threads' time that they were busy, 0 to 1.
    pub busy: f64,
    /// Processor time a request, in microseconds, of the sending threads.
    pub cpu_us: f64,
    /// When this client first could not keep up, UTC, RFC 3339: from then on results are not the server's.
    pub late_from: Option<String>,
    /// Seconds in which it could not.
    pub late_seconds: u64,
}
