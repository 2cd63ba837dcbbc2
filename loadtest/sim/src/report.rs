//! What a run was like, for tables, pages and programs. Field by field in this crate's README.
//!
//! Requests count by their arrival, from the end of the warm-up to the end of the traffic; those of the warm-up run
//! but are not counted. Batches count by their start in that window.

use std::collections::BTreeMap;

use serde::Serialize;

/// Points of a time series at most.
pub const SERIES_MAX: usize = 200;

/// Lanes whose batches a report shows one by one.
pub const TIMELINE_LANES: u32 = 16;

/// One run: one workload, one policy, one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the workload.
    pub workload: String,
    /// Name of the policy, with its options where they differ from the default.
    pub policy: String,
    /// What all chance derived from.
    pub seed: u64,
    /// Lanes of the workload.
    pub lanes: u32,
    /// Seconds of virtual time from the end of the warm-up to the end of the traffic.
    pub virtual_seconds: f64,
    /// How requests ended.
    pub requests: Requests,
    /// Requests offered a second.
    pub offered_rate: f64,
    /// Good answers a second.
    pub goodput: f64,
    /// Good answers by requests offered, 0 to 1; 1 if none was offered.
    pub attainment: f64,
    /// From arrival to answer, of those that were answered; none if nobody was.
    pub latency_ms: Option<Latency>,
    /// Rows a batch, 0 without batches.
    pub mean_batch: f64,
    /// Batches that ran to their end.
    pub batches: u64,
    /// Share of the time of the lanes that were up in which they worked, 0 to 1, lost work included.
    pub lane_busy: f64,
    /// Share of that time spent on batches that were recalled or whose lane went down, 0 to 1.
    pub lost_lane_time: f64,
    /// Batches that were recalled before their end.
    pub preempted: u64,
    /// Batches that were on a lane when it went down.
    pub lost: u64,
    /// Events that the router was given, warm-up included.
    pub events: u64,
    /// 64-bit digest of every event and effect in their order, 16 hexadecimal digits.
    pub hash: String,
    /// Set when the run reached its bound before all was finished.
    pub stopped: Option<Stopped>,
    /// Models in the order of the workload.
    pub models: Vec<ModelFigures>,
    /// Tenants in the order of the workload.
    pub tenants: Vec<TenantFigures>,
    /// Figures over time, at most [`SERIES_MAX`], all buckets equally long; the warm-up is in it.
    pub series: Vec<Bucket>,
    /// Latency over SLO, from the smallest to the largest, at 148 shares that are closer together in the tail; empty
    /// if nobody was answered.
    pub latency_cdf: Vec<Quantile>,
    /// How many batches had how many rows, ascending in rows; sizes that did not occur are left out.
    pub batch_sizes: Vec<BatchSize>,
    /// Every batch of the first [`TIMELINE_LANES`] lanes in a short window in the middle of the run, by its end.
    pub lane_timeline: Vec<Span>,
}

/// How requests ended. `offered` is the sum of all the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// All that arrived in the window.
    pub offered: u64,
    /// Answered by their deadline, or answered at all if they had none.
    pub good: u64,
    /// Answered after their deadline.
    pub late: u64,
    /// Turned away, by the reason's word.
    pub refused: BTreeMap<String, u64>,
    /// Still queued when their deadline passed.
    pub expired: u64,
    /// Started, but their lane went down.
    pub failed: u64,
    /// Neither when the run was stopped at its bound.
    pub unfinished: u64,
}

impl Requests {
    /// Turned away for whatever reason.
    pub fn refused_in_all(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// Milliseconds from arrival to answer, to three digits but for `max` and `mean`, which are exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half take at most this long.
    pub p50: f64,
    /// 90 % take at most this long.
    pub p90: f64,
    /// 99 % take at most this long.
    pub p99: f64,
    /// 99.9 % take at most this long.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

/// Where a run stopped that reached its bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stopped {
    /// Seconds of virtual time from the start of the run.
    pub at_s: f64,
    /// The bound on events that it reached.
    pub max_events: u64,
}

/// One model of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelFigures {
    /// What it is called.
    pub name: String,
    /// Milliseconds that an answer may take.
    pub slo_ms: f64,
    /// Requests for it.
    pub offered: u64,
    /// Its good answers.
    pub good: u64,
    /// Good by offered, 0 to 1; 1 if none was offered.
    pub attainment: f64,
    /// 99 % of its answers took at most so many milliseconds, to two digits; none if nobody was answered.
    pub p99_ms: Option<f64>,
    /// Rows a batch, 0 without batches.
    pub mean_batch: f64,
    /// Requests offered a second.
    pub rate: f64,
}

/// One tenant of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantFigures {
    /// What it is called.
    pub name: String,
    /// Its requests.
    pub offered: u64,
    /// Its good answers.
    pub good: u64,
}

/// What happened in one stretch of time. Requests count where they arrived, batches where they started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// Seconds from the start of the run to the start of the stretch.
    pub t: f64,
    /// Requests that arrived.
    pub offered: u64,
    /// Of those, answered in time.
    pub good: u64,
    /// Of those, never answered: refused, expired or failed.
    pub refused: u64,
    /// Rows a batch, 0 without batches.
    pub mean_batch: f64,
    /// Lanes that worked, averaged over the stretch.
    pub busy_lanes: f64,
    /// 99 % of the answers took at most so many milliseconds, to two digits; none if nobody was answered.
    pub p99_ms: Option<f64>,
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantile {
    /// Share of the answers, 0 to 1.
    pub share: f64,
    /// They took at most this multiple of their model's SLO.
    pub of_slo: f64,
}

/// How often a batch size occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BatchSize {
    /// Rows.
    pub rows: u32,
    /// Batches of so many.
    pub batches: u64,
}

/// A batch on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// Where.
    pub lane: u32,
    /// Number of the model in [`Report::models`].
    pub model: u32,
    /// Rows.
    pub rows: u32,
    /// Milliseconds from the start of the run to its start.
    pub from_ms: f64,
    /// Milliseconds from the start of the run to its end.
    pub to_ms: f64,
    /// How it ended.
    pub end: SpanEnd,
}

/// How a batch on a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanEnd {
    /// It gave results.
    Done,
    /// It was recalled for another.
    Preempted,
    /// The lane went down.
    Lost,
}
