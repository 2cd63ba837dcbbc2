//! What one loaded version did lately.

use std::sync::Arc;

use gpulet_core::control::Counts;

use super::counts::{Ended, Recent};
use crate::catalog::Loaded;
use crate::catalog::latencies::{BUCKETS, quantile_ms};

/// What a latency weighs one second later: those of the last ten seconds weigh most.
const KEPT: f64 = 0.9;

/// The memory of one load of a version.
pub struct Track {
    /// Which load it is.
    load: u64,
    counts: Counts,
    latencies: [u64; BUCKETS],
    weights: [f64; BUCKETS],
    /// Requests that ended.
    pub recent: Recent,
}

impl Track {
    /// Begins with what the version has counted so far.
    pub fn new(loaded: &Loaded) -> Self {
        Self {
            load: loaded.load,
            counts: loaded.statistics.counts(),
            latencies: loaded.statistics.latencies.counts(),
            weights: [0.0; BUCKETS],
            recent: Recent::default(),
        }
    }

    /// Adds what the version counted in the last second. Another load of it counts from nothing.
    pub fn sample(&mut self, loaded: &Arc<Loaded>) -> Ended {
        if self.load != loaded.load {
            (self.load, self.counts, self.latencies) = (loaded.load, Counts::default(), [0; BUCKETS]);
        }
        let counts = loaded.statistics.counts();
        let since = |now: u64, before: u64| u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
        let late = since(counts.late, self.counts.late);
        let answered = since(counts.answered, self.counts.answered);
        let ended = Ended {
            in_time: answered.saturating_sub(late),
            late,
            unanswered: since(counts.failed, self.counts.failed),
        };
        self.weights.iter_mut().for_each(|weight| *weight *= KEPT);
        if answered > 0 {
            let latencies = loaded.statistics.latencies.counts();
            let before = self.latencies.iter().zip(&latencies);
            for (weight, (before, now)) in self.weights.iter_mut().zip(before) {
                *weight += now.saturating_sub(*before) as f64;
            }
            self.latencies = latencies;
        }
        self.counts = counts;
        self.recent.add(ended);
        ended
    }

    /// The latency in milliseconds that this part of the last answers kept.
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        quantile_ms(&self.weights, part)
    }
}
