//! What a run was like, for tables, pages and programs. Field by field in this crate's README.
//!
//! Requests count by their arrival, from the end of the warm-up to the end of the traffic; those of the warm-up run
//! but are not counted. Batches count by their start in that window.

use std::collections::BTreeMap;

use gpulet_core::control::{DecisionEntry, InterferenceEntry};
use serde::Serialize;

/// Points of a time series at most.
pub const SERIES_MAX: usize = 200;

/// Changes of the number of devices that a report tells at most.
pub const STEPS_MAX: usize = 2_000;

/// Gpulets that a report tells at most.
pub const SPANS_MAX: usize = 4_000;

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
    /// Latency of the answered requests, from arrival to answer. `None` if no request was answered.
    pub latency_ms: Option<Latency>,
    /// Rows a batch, 0 without batches.
    pub mean_batch: f64,
    /// Batches that ran to their end.
    pub batches: u64,
    /// Share of the time of available lanes in which they worked, 0 to 1, including lost work.
    pub lane_busy: f64,
    /// Share of the time of available lanes spent on batches that were preempted or failed with their lane, 0 to 1.
    pub lost_lane_time: f64,
    /// Batches that were preempted.
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
    /// Latency over SLO, from the smallest to the largest, at 148 shares that are closer together in the tail. Empty
    /// if no request was answered.
    pub latency_cdf: Vec<Quantile>,
    /// How many batches had how many rows, ascending in rows; sizes that did not occur are left out.
    pub batch_sizes: Vec<BatchSize>,
    /// Every batch of the first [`TIMELINE_LANES`] lanes in a short window in the middle of the run, by its end.
    pub lane_timeline: Vec<Span>,
    /// Devices and gpulets. `None` if the workload has no devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionFigures>,
}

/// Figures about devices partitioned into gpulets. A device counts as used while a gpulet is open on it. That includes
/// gpulets that are being opened and gpulets that stay open for a rollback.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionFigures {
    /// Word of the placement policy.
    pub policy: String,
    /// Word of the scaler.
    pub scaling: String,
    /// File of the plan that was in force all the time; none where plans followed the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Devices that there are.
    pub devices: u32,
    /// Devices used at once at most, inside the window, as all that follows.
    pub devices_most: u32,
    /// Devices used on average.
    pub devices_mean: f64,
    /// Seconds of devices used.
    pub device_seconds: f64,
    /// The same, each times the cost of its device.
    pub cost_seconds: f64,
    /// Tables that came in force in the whole run, the first included.
    pub changes: u64,
    /// Plans that were begun or wanted and did not come in force.
    pub failures: u64,
    /// Times at which there was no plan for the load for a reason that was news.
    pub unplanned: u64,
    /// Share of what was wanted that plans were made for, at least: below 1 where the devices were too few for it.
    pub share_least: f64,
    /// Why there was no plan, or why one did not come in force, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// When the number of devices that are used changed, and to what.
    pub steps: Vec<DeviceStep>,
    /// Gpulets that were in force, by device and place.
    pub gpulets: Vec<GpuletSpan>,
    /// Interference observed on each device type, at the end of the run.
    pub interference: Vec<InterferenceEntry>,
    /// Why rates that are planned for moved, oldest first; the last 256.
    pub decisions: Vec<DecisionEntry>,
}

/// The number of devices that are used changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeviceStep {
    /// Seconds from the start of the run.
    pub t: f64,
    /// Devices used from then on.
    pub devices: u32,
}

/// A gpulet while it was in force with the same models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuletSpan {
    /// Name of the device.
    pub device: String,
    /// Its first unit.
    pub first_unit: u32,
    /// How many units.
    pub units: u32,
    /// What it ran, in turn.
    pub models: Vec<String>,
    /// Seconds from the start of the run.
    pub from_s: f64,
    /// The same, of its end.
    pub to_s: f64,
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
    /// 99th-percentile latency in milliseconds, to two digits. `None` if no request was answered.
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
    /// 99th-percentile latency in milliseconds, to two digits. `None` if no request was answered.
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
    /// Number of rows of a batch.
    pub rows: u32,
    /// Number of batches of this size.
    pub batches: u64,
}

/// A batch on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// Number of the lane, from 0.
    pub lane: u32,
    /// Number of the model in [`Report::models`].
    pub model: u32,
    /// Number of rows of the batch.
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
    /// A more urgent batch preempted it.
    Preempted,
    /// Its lane failed.
    Lost,
}
