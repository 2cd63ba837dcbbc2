//! Metric handles of one model version, and of one lane.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label};

use super::names::{self, Metric};
use crate::reason::Reason;
use router::Timing;

/// Metrics of one model version, registered when it is loaded.
#[derive(Clone)]
pub struct ModelMetrics {
    queue: LateHistogram,
    batch_wait: LateHistogram,
    compute: LateHistogram,
    request: LateHistogram,
    batch_rows: LateHistogram,
    requests: Counter,
    hits: Counter,
    misses: Counter,
    depth: Gauge,
    prediction: LateGauge,
    refusals: Arc<Refusals>,
    cache: Option<(Counter, Counter)>,
    triton: Option<Triton>,
}

/// A histogram that is registered with its first value: an empty one has as many series as a full one, and most of many models are
/// idle.
#[derive(Clone)]
struct LateHistogram(Late<Histogram>);

/// A gauge that is registered with its first value.
#[derive(Clone)]
struct LateGauge(Late<Gauge>);

#[derive(Clone)]
struct Late<T> {
    name: &'static str,
    labels: Arc<[Label]>,
    registered: Arc<OnceLock<T>>,
}

impl<T> Late<T> {
    fn new(metric: Metric, labels: &Arc<[Label]>) -> Self {
        Self { name: metric.name, labels: Arc::clone(labels), registered: Arc::default() }
    }
}

impl LateHistogram {
    fn record(&self, value: impl metrics::IntoF64) {
        let Self(late) = self;
        let histogram = late.registered.get_or_init(|| metrics::histogram!(late.name, late.labels.iter()));
        histogram.record(value);
    }
}

impl LateGauge {
    fn set(&self, value: f64) {
        let Self(late) = self;
        late.registered.get_or_init(|| metrics::gauge!(late.name, late.labels.iter())).set(value);
    }
}

/// Counters of requests without a result, by reason. Those of rare reasons are registered when they occur.
struct Refusals {
    labels: Vec<Label>,
    counters: [OnceLock<Counter>; Reason::ALL.len()],
}

impl Refusals {
    /// Reasons that are shown from the start, so that the first one is an increase.
    const COMMON: [Reason; 6] = [
        Reason::QueueFull,
        Reason::DeadlineUnmeetable,
        Reason::Shed,
        Reason::Expired,
        Reason::Cancelled,
        Reason::EngineFailed,
    ];

    fn new(labels: Vec<Label>) -> Self {
        let refusals = Self { labels, counters: [const { OnceLock::new() }; Reason::ALL.len()] };
        for reason in Self::COMMON {
            refusals.counter(reason);
        }
        refusals
    }

    fn counter(&self, reason: Reason) -> Option<&Counter> {
        let counter = self.counters.get(reason.index())?;
        Some(counter.get_or_init(|| {
            let reason = Label::new(names::REASON, reason.label());
            metrics::counter!(names::REFUSALS.name, with(&self.labels, reason).iter())
        }))
    }
}

/// Whose metrics they are.
pub struct ModelLabels<'a> {
    /// Model name.
    pub model: &'a str,
    /// Version number.
    pub version: u64,
    /// `metric_tags` of `config.pbtxt`; each becomes a label with `_` in front, as in Triton.
    pub tags: &'a BTreeMap<String, String>,
}

impl ModelLabels<'_> {
    fn labels(&self) -> Vec<Label> {
        let tags = self.tags.iter().map(|(name, value)| Label::new(format!("_{name}"), value.clone()));
        let own = [(names::MODEL, self.model.to_owned()), (names::VERSION, self.version.to_string())];
        own.into_iter().map(|(name, value)| Label::new(name, value)).chain(tags).collect()
    }
}

/// Triton's counters of the same model.
#[derive(Clone)]
struct Triton {
    success: Counter,
    /// By [`Failure`].
    failures: [Counter; 4],
    count: Counter,
    executions: Counter,
    request_us: Counter,
    queue_us: Counter,
    input_us: Counter,
    infer_us: Counter,
    output_us: Counter,
    pending: Gauge,
    cache: Option<TritonCache>,
}

/// Triton's counters of the response cache.
#[derive(Clone)]
struct TritonCache {
    hits: Counter,
    hit_us: Counter,
    misses: Counter,
    miss_us: Counter,
}

/// Triton's reasons of a failure.
#[derive(Clone, Copy)]
enum Failure {
    Rejected,
    Canceled,
    Backend,
    Other,
}

impl Failure {
    /// The values of the label, in the order of the enum.
    const LABELS: [&str; 4] = ["REJECTED", "CANCELED", "BACKEND", "OTHER"];

    fn of(reason: Reason) -> Self {
        match reason {
            Reason::QueueFull
            | Reason::DeadlineUnmeetable
            | Reason::Shed
            | Reason::Expired
            | Reason::Quota => Self::Rejected,
            Reason::Cancelled => Self::Canceled,
            Reason::EngineFailed | Reason::LaneFailed | Reason::Quarantined => Self::Backend,
            _ => Self::Other,
        }
    }
}

impl ModelMetrics {
    /// Registers the metrics of one model version with the current recorder. `caches`: its answers are cached.
    /// `triton_names` adds Triton's metrics.
    pub fn new(whose: &ModelLabels<'_>, caches: bool, triton_names: bool) -> Self {
        let labels = whose.labels();
        let counter = |metric: Metric| metrics::counter!(metric.name, labels.iter());
        let gauge = |metric: Metric| metrics::gauge!(metric.name, labels.iter());
        let shared: Arc<[Label]> = labels.as_slice().into();
        let histogram = |metric: Metric| LateHistogram(Late::new(metric, &shared));
        let triton = triton_names.then(|| {
            let failure = |reason: &'static str| {
                let labels = with(&labels, Label::new(names::REASON, reason));
                metrics::counter!(names::NV_FAILURE.name, labels.iter())
            };
            Triton {
                success: counter(names::NV_SUCCESS),
                failures: Failure::LABELS.map(failure),
                count: counter(names::NV_COUNT),
                executions: counter(names::NV_EXEC_COUNT),
                request_us: counter(names::NV_REQUEST_US),
                queue_us: counter(names::NV_QUEUE_US),
                input_us: counter(names::NV_COMPUTE_INPUT_US),
                infer_us: counter(names::NV_COMPUTE_INFER_US),
                output_us: counter(names::NV_COMPUTE_OUTPUT_US),
                pending: gauge(names::NV_PENDING),
                cache: caches.then(|| TritonCache {
                    hits: counter(names::NV_CACHE_HITS),
                    hit_us: counter(names::NV_CACHE_HIT_US),
                    misses: counter(names::NV_CACHE_MISSES),
                    miss_us: counter(names::NV_CACHE_MISS_US),
                }),
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
            prediction: LateGauge(Late::new(names::PREDICTION, &shared)),
            refusals: Arc::new(Refusals::new(labels.clone())),
            cache: caches.then(|| (counter(names::CACHE_HITS), counter(names::CACHE_MISSES))),
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
            triton.output_us.increment(micros(timing.hand_back));
        }
    }

    /// Records a request that the response cache answered `total` after its arrival. The look-up took `lookup`.
    pub fn record_cache_hit(&self, lookup: Duration, total: Duration) {
        self.request.record(total);
        self.requests.increment(1);
        if let Some((hits, _)) = &self.cache {
            hits.increment(1);
        }
        if let Some(triton) = &self.triton {
            triton.success.increment(1);
            triton.request_us.increment(micros(total));
            if let Some(cache) = &triton.cache {
                cache.hits.increment(1);
                cache.hit_us.increment(micros(lookup));
            }
        }
    }

    /// Records a request that the response cache did not know: the time to look it up and to remember its answer.
    pub fn record_cache_miss(&self, spent: Duration) {
        if let Some((_, misses)) = &self.cache {
            misses.increment(1);
        }
        if let Some(cache) = self.triton.as_ref().and_then(|triton| triton.cache.as_ref()) {
            cache.misses.increment(1);
            cache.miss_us.increment(micros(spent));
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
        if let Some(counter) = self.refusals.counter(reason) {
            counter.increment(1);
        }
        if let Some(triton) = &self.triton {
            let [rejected, canceled, backend, other] = &triton.failures;
            let counter = match Failure::of(reason) {
                Failure::Rejected => rejected,
                Failure::Canceled => canceled,
                Failure::Backend => backend,
                Failure::Other => other,
            };
            counter.increment(1);
        }
    }

    /// Sets the ratio of measured to predicted batch times.
    pub fn over_predicted(&self, ratio: f64) {
        self.prediction.set(ratio);
    }

    /// Sets the number of queued requests.
    pub fn queue_depth(&self, requests: usize) {
        let requests = f64::from(u32::try_from(requests).unwrap_or(u32::MAX));
        self.depth.set(requests);
        if let Some(triton) = &self.triton {
            triton.pending.set(requests);
        }
    }
}

fn with(labels: &[Label], one: Label) -> Vec<Label> {
    labels.iter().cloned().chain([one]).collect()
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
