//! Counts of one loaded version, as the statistics extension shows them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpulet_core::control::Counts;
use oip::proto::{InferBatchStatistics, InferStatistics, ModelStatistics, StatisticDuration};
use router::Timing;

use super::latencies::Latencies;

#[derive(Default)]
struct Sum {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Sum {
    fn add(&self, time: Duration) {
        self.count.fetch_add(1, Relaxed);
        self.ns.fetch_add(nanos(time), Relaxed);
    }

    /// The counts, and `calls` more that took `ns` in all.
    fn show(&self, (calls, ns): (u64, u64)) -> Option<StatisticDuration> {
        let (own, own_ns) = self.read();
        Some(StatisticDuration { count: own.saturating_add(calls), ns: own_ns.saturating_add(ns) })
    }

    fn read(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.ns.load(Relaxed))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Default)]
struct BatchSum {
    count: u64,
    wait_ns: u64,
    compute_ns: u64,
    back_ns: u64,
}

impl BatchSum {
    fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            wait_ns: self.wait_ns.saturating_add(other.wait_ns),
            compute_ns: self.compute_ns.saturating_add(other.compute_ns),
            back_ns: self.back_ns.saturating_add(other.back_ns),
        }
    }
}

/// Batches of one size that a lane ran, on all gpulets that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneBatches {
    /// Number of the lane.
    pub lane: u32,
    /// Rows of each batch.
    pub rows: u32,
    /// Number of batches.
    pub count: u64,
    /// Total time in the engine.
    pub compute: Duration,
}

/// Requests of other models that ran on the lane of their caller. The control loop does not count them: their time is part of the
/// caller's batches.
#[derive(Default)]
struct Calls {
    rows: AtomicU64,
    success: Sum,
    fail: Sum,
    by_rows: Mutex<BTreeMap<u32, BatchSum>>,
}

/// Counters since the version was loaded.
#[derive(Default)]
pub struct Statistics {
    calls: Calls,
    rows: AtomicU64,
    executions: AtomicU64,
    last_ms: AtomicU64,
    late: AtomicU64,
    /// Of answered requests.
    pub latencies: Latencies,
    success: Sum,
    fail: Sum,
    queue: Sum,
    input: Sum,
    infer: Sum,
    output: Sum,
    cache_hit: Sum,
    cache_miss: Sum,
    /// By lane and rows.
    batches: Mutex<BTreeMap<(u32, u32), BatchSum>>,
}

impl Statistics {
    /// Requests answered.
    pub fn answers(&self) -> u64 {
        self.success.read().0
    }

    /// Records a request of `rows` rows that was answered `total` after its arrival. `deadline_met` is `None` without a
    /// deadline.
    pub fn answered(&self, rows: u32, timing: &Timing, total: Duration, deadline_met: Option<bool>) {
        self.rows.fetch_add(u64::from(rows), Relaxed);
        if deadline_met == Some(false) {
            self.late.fetch_add(1, Relaxed);
        }
        self.success.add(total);
        self.latencies.add(total);
        self.queue.add(timing.queue);
        self.input.add(timing.batch_wait);
        self.infer.add(timing.compute);
        self.output.add(timing.hand_back);
        if timing.leads_batch {
            self.executions.fetch_add(1, Relaxed);
            self.ran_now();
            let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
            let sum = batches.entry((timing.lane, timing.batch_rows)).or_default();
            sum.count += 1;
            sum.wait_ns = sum.wait_ns.saturating_add(nanos(timing.batch_wait));
            sum.compute_ns = sum.compute_ns.saturating_add(nanos(timing.compute));
            sum.back_ns = sum.back_ns.saturating_add(nanos(timing.hand_back));
        }
    }

    fn ran_now(&self) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_ms.store(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Records a request of another model that ran on that model's lane and took `took`.
    pub fn called(&self, rows: u32, took: Duration) {
        self.calls.rows.fetch_add(u64::from(rows), Relaxed);
        self.calls.success.add(took);
        self.ran_now();
        let mut by_rows = self.calls.by_rows.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = by_rows.entry(rows).or_default();
        sum.count += 1;
        sum.compute_ns = sum.compute_ns.saturating_add(nanos(took));
    }

    /// Records such a request that failed.
    pub fn call_failed(&self, took: Duration) {
        self.calls.fail.add(took);
    }

    /// Records a request that the response cache answered, after a look-up of `lookup`.
    pub fn answered_from_cache(&self, lookup: Duration, total: Duration) {
        self.success.add(total);
        self.latencies.add(total);
        self.queue.add(Duration::ZERO);
        self.cache_hit.add(lookup);
    }

    /// Records a request that the response cache did not know: the time to look it up and to remember its answer.
    pub fn missed_cache(&self, spent: Duration) {
        self.cache_miss.add(spent);
    }

    /// Records a request that ended without a result.
    pub fn failed(&self, total: Duration) {
        self.fail.add(total);
    }

    /// Counts for the control loop.
    pub fn counts(&self) -> Counts {
        Counts {
            rows: self.rows.load(Relaxed),
            answered: self.success.count.load(Relaxed),
            late: self.late.load(Relaxed),
            failed: self.fail.count.load(Relaxed),
        }
    }

    /// Mean rows of the requests that were answered; 1 without any.
    pub fn mean_rows(&self) -> f64 {
        let counts = self.counts();
        if counts.answered == 0 { 1.0 } else { counts.rows as f64 / counts.answered as f64 }
    }

    /// Number and mean time of batches, by rows.
    pub fn batch_times(&self) -> Vec<(u32, u64, Duration)> {
        let mean = |(rows, sum): (u32, BatchSum)| {
            (rows, sum.count, Duration::from_nanos(sum.compute_ns / sum.count.max(1)))
        };
        self.by_rows().into_iter().map(mean).collect()
    }

    /// Batches by lane and rows, without failed ones.
    pub fn lane_batches(&self) -> Vec<LaneBatches> {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(&(lane, rows), sum): (&(u32, u32), &BatchSum)| LaneBatches {
            lane,
            rows,
            count: sum.count,
            compute: Duration::from_nanos(sum.compute_ns),
        };
        batches.iter().map(of).collect()
    }

    fn by_rows(&self) -> BTreeMap<u32, BatchSum> {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: BTreeMap<u32, BatchSum> = BTreeMap::new();
        for ((_, rows), sum) in batches.iter() {
            let known = all.entry(*rows).or_default();
            *known = known.and(*sum);
        }
        all
    }

    /// The statistics message of the protocol.
    pub fn show(&self, name: &str, version: u64) -> ModelStatistics {
        let of = |count, ns| Some(StatisticDuration { count, ns });
        let batch = |(rows, sum): (u32, BatchSum)| InferBatchStatistics {
            batch_size: u64::from(rows),
            compute_input: of(sum.count, sum.wait_ns),
            compute_infer: of(sum.count, sum.compute_ns),
            compute_output: of(sum.count, sum.back_ns),
        };
        let (calls, called_ns) = self.calls.success.read();
        let mut by_rows: BTreeMap<u32, BatchSum> = self.by_rows().into_iter().collect();
        for (rows, sum) in self.calls.by_rows.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let own = by_rows.entry(*rows).or_default();
            *own = own.and(*sum);
        }
        let none = (0, 0);
        ModelStatistics {
            name: name.to_owned(),
            version: version.to_string(),
            last_inference: self.last_ms.load(Relaxed),
            inference_count: self.rows.load(Relaxed).saturating_add(self.calls.rows.load(Relaxed)),
            execution_count: self.executions.load(Relaxed).saturating_add(calls),
            inference_stats: Some(InferStatistics {
                success: self.success.show((calls, called_ns)),
                fail: self.fail.show(self.calls.fail.read()),
                queue: self.queue.show((calls, 0)),
                compute_input: self.input.show((calls, 0)),
                compute_infer: self.infer.show((calls, called_ns)),
                compute_output: self.output.show((calls, 0)),
                cache_hit: self.cache_hit.show(none),
                cache_miss: self.cache_miss.show(none),
            }),
            batch_stats: by_rows.into_iter().map(batch).collect(),
            ..ModelStatistics::default()
        }
    }
}
