//! Figures of a run.

use serde::Serialize;

/// What a run measured after its warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Online requests that arrived after the warm-up and ended.
    pub requests: usize,
    /// Online requests that had not ended when the run was stopped; above 0 means overload.
    pub unfinished: usize,
    /// Median latency of online requests, in milliseconds.
    pub p50_ms: f64,
    /// 95th percentile of the latency of online requests, in milliseconds.
    pub p95_ms: f64,
    /// 99th percentile of the latency of online requests, in milliseconds.
    pub p99_ms: f64,
    /// Online requests that ended a second.
    pub online_per_second: f64,
    /// Requests or iterations of each best-effort model that ended a second.
    pub best_effort_per_second: Vec<f64>,
    /// Share of the time in which at least one block ran, from 0 to 1: what drivers call utilisation.
    pub busy_share: f64,
    /// Share of the SMs that held blocks, from 0 to 1: SM activity.
    pub sm_share: f64,
    /// Share of the SMs that held blocks of the online model, from 0 to 1.
    pub online_sm_share: f64,
    /// Kernels that hosts launched, by client, from the start.
    pub kernels_issued: Vec<u64>,
    /// Kernels that ended, by client, from the start.
    pub kernels_ended: Vec<u64>,
}

/// The value that a share of sorted values does not exceed (nearest rank); 0 without values.
#[must_use]
pub fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
