//! Metric handles of one model version, and of one lane.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::names::{self, Metric};
use crate::reason::Reason;
use router::Timing;

/// Metrics of one model version, registered when it is loaded.
#[derive(Clone)]
pub struct ModelMetrics {
    queue: Histogram,
    batch_wait: Histogram,
    compute: Histogram,
    request: Histogram,
    batch_rows: Histogram,
    requests: Counter,
    hits: Counter,
    misses: Counter,
    depth: Gauge,
    prediction: Gauge,
    refusals: Vec<Counter>,
    triton: Option<Triton>,
}

/// Triton's counters of the same model.
#[derive(Clone)]
struct Triton {
    success: Counter,
    failure: Counter,
    count: Counter,
    executions: Counter,
    request_us: Counter,
    queue_us: Counter,
    input_us: Counter,
    infer_us: Counter,
    pending: Gauge,
}

impl ModelMetrics {
    /// Registers the metrics of one model version with the current recorder; `triton_names` adds Triton's.
    pub fn new(model: &str, version: &str, triton_names: bool) -> Self {
        let labels = [(names::MODEL, model.to_owned()), (names::VERSION, version.to_owned())];
        let counter = |metric: Metric| metrics::counter!(metric.name, &labels);
        let gauge = |metric: Metric| metrics::gauge!(metric.name, &labels);
        let histogram = |metric: Metric| metrics::histogram!(metric.name, &labels);
        let refusal = |&reason: &Reason| {
            let [model, version] = labels.clone();
            let labels = [model, version, (names::REASON, reason.label().to_owned())];
            metrics::counter!(names::REFUSALS.name, &labels)
        };
        let triton = triton_names.then(|| {
            // Scattering of outputs is not measured separately. The counter exists for dashboards and stays 0.
            drop(counter(names::NV_COMPUTE_OUTPUT_US));
            Triton {
                success: counter(names::NV_SUCCESS),
                failure: counter(names::NV_FAILURE),
                count: counter(names::NV_COUNT),
                executions: counter(names::NV_EXEC_COUNT),
                request_us: counter(names::NV_REQUEST_US),
                queue_us: counter(names::NV_QUEUE_US),
                input_us: counter(names::NV_COMPUTE_INPUT_US),
                infer_us: counter(names::NV_COMPUTE_INFER_US),
                pending: gauge(names::NV_PENDING),
            }
        });
        Self {
            queue: histogram(names::QUEUE),
            batch_wait: histogram(names::BATCH_WAIT),
            compute: histogram(names::COMPUTE),
            request: histogram(names::REQUEST),
            batch_rows: histogram(names::BATCH_ROWS),
            requests: counter(names::REQUESTS),
            hits: counter(names::DEADLINE_HITS),
            misses: counter(names::DEADLINE_MISSES),
            depth: gauge(names::QUEUE_DEPTH),
            prediction: gauge(names::PREDICTION),
            refusals: Reason::ALL.iter().map(refusal).collect(),
            triton,
        }
    }

    /// Records a request that was answered `total` after its arrival. `deadline_met` is `None` without a deadline.
    pub fn record_answer(&self, timing: &Timing, total: Duration, deadline_met: Option<bool>) {
        self.queue.record(timing.queue);
        self.batch_wait.record(timing.batch_wait);
        self.compute.record(timing.compute);
        self.request.record(total);
        self.requests.increment(1);
        match deadline_met {
            Some(true) => self.hits.increment(1),
            Some(false) => self.misses.increment(1),
            None => {}
        }
        if let Some(triton) = &self.triton {
            triton.success.increment(1);
            triton.request_us.increment(micros(total));
            triton.queue_us.increment(micros(timing.queue));
            triton.input_us.increment(micros(timing.batch_wait));
            triton.infer_us.increment(micros(timing.compute));
        }
    }

    /// Records one executed batch of `rows` rows.
    pub fn record_batch(&self, rows: u32) {
        self.batch_rows.record(f64::from(rows));
        if let Some(triton) = &self.triton {
            triton.count.increment(u64::from(rows));
            triton.executions.increment(1);
        }
    }

    /// Records one request of this model that ended without a result.
    pub fn record_refusal(&self, reason: Reason) {
        if let Some(counter) = self.refusals.get(reason.index()) {
            counter.increment(1);
        }
        if let Some(triton) = &self.triton {
            triton.failure.increment(1);
        }
    }

    /// Sets the ratio of measured to predicted batch times.
    pub fn over_predicted(&self, ratio: f64) {
        self.prediction.set(ratio);
    }

    /// Sets how many requests are queued.
    pub fn queue_depth(&self, requests: usize) {
        let requests = f64::from(u32::try_from(requests).unwrap_or(u32::MAX));
        self.depth.set(requests);
        if let Some(triton) = &self.triton {
            triton.pending.set(requests);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Metrics of one lane.
#[derive(Clone)]
pub struct LaneMetrics {
    busy: Gauge,
    up: Gauge,
    failures: Counter,
}

impl LaneMetrics {
    /// Registers the metrics of the lane with this index.
    pub fn new(lane: u32) -> Self {
        let lane = lane.to_string();
        Self {
            busy: metrics::gauge!(names::LANE_BUSY.name, names::LANE => lane.clone()),
            up: metrics::gauge!(names::LANE_UP.name, names::LANE => lane.clone()),
            failures: metrics::counter!(names::LANE_FAILURES.name, names::LANE => lane),
        }
    }

    /// Sets whether the lane takes batches.
    pub fn up(&self, up: bool) {
        self.up.set(if up { 1.0 } else { 0.0 });
    }

    /// Counts a failure; the lane is down.
    pub fn failed(&self) {
        self.failures.increment(1);
        self.up(false);
    }

    /// Sets whether the lane runs a batch.
    pub fn busy(&self, busy: bool) {
        self.busy.set(if busy { 1.0 } else { 0.0 });
    }
}
