//! The report of a run, for tables, pages and programs. This crate's README describes every field.
//!
//! Requests count by their arrival, from the end of the warm-up to the end of the traffic; those of the warm-up run
//! but are not counted. Batches count by their start in that window.

use std::collections::BTreeMap;

use gpulet_core::control::{DecisionEntry, InterferenceEntry};
use gpulet_core::id::DeviceId;
use serde::Serialize;
use workload::Deadlines;

/// Upper bound on the points of a time series.
pub const SERIES_MAX: usize = 200;

/// Upper bound on the changes of the number of devices in a report.
pub const STEPS_MAX: usize = 2_000;

/// Upper bound on the gpulets in a report.
pub const SPANS_MAX: usize = 4_000;

/// Number of lanes whose batches a report lists.
pub const TIMELINE_LANES: u32 = 16;

/// How the objective of a pipeline is divided that has `split = "plan"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChosenSplit {
    /// Name of the pipeline.
    pub pipeline: String,
    /// `end_to_end` or `static`, as in workload files.
    pub deadlines: Deadlines,
    /// Each stage with its share of the objective.
    pub shares: Vec<(String, f64)>,
}

/// What the variants of a family answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyFigures {
    /// Name of the family.
    pub family: String,
    /// Mean quality of the answered requests; 0 without any.
    pub quality: f64,
    /// How often the level fell, over the whole run.
    pub falls: u64,
    /// How often it rose.
    pub rises: u64,
    /// The variants in the order of their names.
    pub variants: Vec<VariantFigures>,
}

/// What a variant of a family answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariantFigures {
    /// Name of the model.
    pub name: String,
    /// Its quality.
    pub quality: f64,
    /// Requests of the family that it answered.
    pub answered: u64,
    /// Those in time.
    pub good: u64,
    /// Part of the answered requests of the family, 0 to 1.
    pub share: f64,
}

/// One run: one workload, one policy, one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the workload.
    pub workload: String,
    /// Name of the policy, with its options where they differ from the default.
    pub policy: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// Lanes of the workload.
    pub lanes: u32,
    /// How the objectives of pipelines are divided that have `split = "plan"`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<ChosenSplit>,
    /// Families, and what their variants answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyFigures>,
    /// Seconds of virtual time from the end of the warm-up to the end of the traffic.
    pub virtual_seconds: f64,
    /// How requests ended. Requests, rates, attainment, latencies and the series leave out models of best effort, if there are others.
    pub requests: Requests,
    /// Requests offered a second.
    pub offered_rate: f64,
    /// Good answers a second.
    pub goodput: f64,
    /// Good answers divided by requests offered, 0 to 1; 1 without requests.
    pub attainment: f64,
    /// Latency of the answered requests, from arrival to answer. `None` if no request was answered.
    pub latency_ms: Option<Latency>,
    /// Mean rows per batch; 0 without batches.
    pub mean_batch: f64,
    /// Batches that completed.
    pub batches: u64,
    /// Share of the time of available lanes in which they worked, 0 to 1, including lost work.
    pub lane_busy: f64,
    /// Share of the same time in which batches ran at idle priority.
    pub at_idle_priority: f64,
    /// Share of the time of available lanes spent on batches that were preempted or failed with their lane, 0 to 1.
    pub lost_lane_time: f64,
    /// Batches that were preempted.
    pub preempted: u64,
    /// Batches that failed with their lane.
    pub lost: u64,
    /// Events that the router processed, including the warm-up.
    pub events: u64,
    /// 64-bit digest of every event and effect in their order, 16 hexadecimal digits.
    pub hash: String,
    /// Where the run stopped, if it reached its bound on events.
    pub stopped: Option<Stopped>,
    /// Models in the order of the workload.
    pub models: Vec<ModelFigures>,
    /// Tenants in the order of the workload.
    pub tenants: Vec<TenantFigures>,
    /// Figures over time, in at most [`SERIES_MAX`] buckets of equal length, including the warm-up.
    pub series: Vec<Bucket>,
    /// Latency over SLO, from the smallest to the largest, at 148 shares that are closer together in the tail. Empty
    /// if no request was answered.
    pub latency_cdf: Vec<Quantile>,
    /// Number of batches by rows, ascending. Sizes that did not occur are left out.
    pub batch_sizes: Vec<BatchSize>,
    /// Every batch of the first [`TIMELINE_LANES`] lanes in a short window in the middle of the run, by its end.
    pub lane_timeline: Vec<Span>,
    /// Roll-outs of new versions that began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<RolloutFigures>,
    /// Devices and gpulets. `None` if the workload has no devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionFigures>,
}

/// The roll-out of a new version of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RolloutFigures {
    /// Name of the model.
    pub model: String,
    /// Where it stood at the end of the run.
    pub state: version_rollout::State,
    /// Why it ended.
    pub cause: Option<String>,
    /// The tenant whose requests were decisive.
    pub tenant: Option<String>,
    /// When it began, in seconds from the start of the run.
    pub at_s: f64,
    /// When it ended. `None`: it has not.
    pub ended_s: Option<f64>,
    /// How requests of both versions ended.
    pub figures: version_rollout::Figures,
}

/// Figures about devices partitioned into gpulets. A device counts as used while a gpulet is open on it. That includes
/// gpulets that are being opened and gpulets that stay open for a rollback.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionFigures {
    /// Name of the placement policy.
    pub policy: String,
    /// Name of the scaler.
    pub scaling: String,
    /// File of the plan of the whole run. `None` if plans followed the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Number of devices.
    pub devices: u32,
    /// Greatest number of devices used at once. Like the figures below, it counts inside the window.
    pub devices_most: u32,
    /// Mean number of devices used.
    pub devices_mean: f64,
    /// Device seconds used.
    pub device_seconds: f64,
    /// Device seconds used, each multiplied by the cost of its device.
    pub cost_seconds: f64,
    /// Plans that came into force in the whole run, including the first.
    pub changes: u64,
    /// Plans that did not come into force.
    pub failures: u64,
    /// How often the planner found no plan for the load for a new reason.
    pub unplanned: u64,
    /// Least share of the planned rates that a plan served. Below 1 if there were too few devices.
    pub share_least: f64,
    /// The last reason for which there was no plan, or a plan did not come into force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Changes of the number of used devices.
    pub steps: Vec<DeviceStep>,
    /// Gpulets that were in force, by device and first unit.
    pub gpulets: Vec<GpuletSpan>,
    /// Interference observed on each device type, at the end of the run.
    pub interference: Vec<InterferenceEntry>,
    /// Reasons for changes of the planned rates, oldest first; the last 256.
    pub decisions: Vec<DecisionEntry>,
}

/// A change of the number of used devices.
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
    pub device: DeviceId,
    /// Its first unit.
    pub first_unit: u32,
    /// Number of units.
    pub units: u32,
    /// Models that it ran.
    pub models: Vec<String>,
    /// Seconds from the start of the run.
    pub from_s: f64,
    /// Seconds from the start of the run to its end.
    pub to_s: f64,
}

/// How requests ended. `offered` is the sum of all the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Requests that arrived in the window.
    pub offered: u64,
    /// Answered by their deadline, or answered at all if they had none.
    pub good: u64,
    /// Answered after their deadline.
    pub late: u64,
    /// Rejected, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Still queued when their deadline passed.
    pub expired: u64,
    /// Started, but their lane failed.
    pub failed: u64,
    /// Unfinished when the run stopped at its bound.
    pub unfinished: u64,
}

impl Requests {
    /// Number of rejected requests, for all reasons.
    pub fn refused_in_all(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// Milliseconds from arrival to answer, to three digits but for `max` and `mean`, which are exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// 50th percentile, the median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Maximum, exact.
    pub max: f64,
    /// Mean, exact.
    pub mean: f64,
}

/// Where a run stopped because it reached its bound.
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
    /// Name, as in the workload.
    pub name: String,
    /// Latency objective in milliseconds.
    pub slo_ms: f64,
    /// Requests that arrived for it.
    pub offered: u64,
    /// Its good answers.
    pub good: u64,
    /// Good answers divided by requests offered, 0 to 1; 1 without requests.
    pub attainment: f64,
    /// 99th-percentile latency in milliseconds, to two digits. `None` if no request was answered.
    pub p99_ms: Option<f64>,
    /// Mean rows per batch; 0 without batches.
    pub mean_batch: f64,
    /// Requests offered a second.
    pub rate: f64,
}

/// One tenant of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantFigures {
    /// Name, as in the workload.
    pub name: String,
    /// Requests that it sent.
    pub offered: u64,
    /// Its good answers.
    pub good: u64,
    /// Good answers divided by requests offered, 0 to 1; 1 without requests.
    pub attainment: f64,
    /// Requests that were refused because its quota was used up.
    pub refused_by_quota: u64,
    /// Lane time that it used, in seconds per second.
    pub device_seconds_per_second: f64,
    /// Its quota of lane time, in seconds per second. `None`: no limit.
    pub device_seconds_quota: Option<f64>,
    /// Its quota of requests per second. `None`: no limit.
    pub requests_quota: Option<f64>,
    /// Part of all used lane time that it used, 0 to 1.
    pub device_share: f64,
    /// Part of contended lane time that is due to its weight among the tenants that sent requests, 0 to 1.
    pub weight_share: f64,
}

impl TenantFigures {
    /// Titles of the columns of its table.
    pub const COLUMNS: [&str; 8] = [
        "tenant",
        "offered",
        "attainment",
        "refused by quota",
        "device s/s",
        "quota s/s",
        "device share",
        "share due",
    ];
}

impl Report {
    /// The tenants that sent requests, if a table of them tells more than the totals: there are several, or one has a
    /// quota.
    pub fn tenants_to_show(&self) -> Vec<&TenantFigures> {
        let limited =
            |one: &&TenantFigures| one.device_seconds_quota.is_some() || one.requests_quota.is_some();
        let sent: Vec<&TenantFigures> = self.tenants.iter().filter(|tenant| tenant.offered > 0).collect();
        if sent.len() > 1 || sent.iter().any(limited) { sent } else { Vec::new() }
    }
}

/// Figures of one bucket of time. Requests count where they arrived, batches where they started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// Seconds from the start of the run to the start of the bucket.
    pub t: f64,
    /// Requests that arrived.
    pub offered: u64,
    /// Of those, answered in time.
    pub good: u64,
    /// Of those, not answered: rejected, expired or failed.
    pub refused: u64,
    /// Mean rows per batch; 0 without batches.
    pub mean_batch: f64,
    /// Mean number of busy lanes.
    pub busy_lanes: f64,
    /// 99th-percentile latency in milliseconds, to two digits. `None` if no request was answered.
    pub p99_ms: Option<f64>,
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantile {
    /// Share of the answers, 0 to 1.
    pub share: f64,
    /// Latency at this share, as a multiple of the model's SLO.
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
    /// It completed.
    Done,
    /// It was preempted.
    Preempted,
    /// Its lane failed.
    Lost,
}
