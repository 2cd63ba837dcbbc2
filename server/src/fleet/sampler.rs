//! One sampler of the node's state for all streams of signals. It runs only while there are streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use node::reason::{Reason, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::proto::{ModelSignals, Signals};
use super::signals::{Sample, Told, interval};
use crate::service::Service;

/// Streams at once.
const STREAMS_MAX: usize = 64;
/// Time between two samples.
const PERIOD: Duration = Duration::from_millis(100);
/// Time over which rates are measured.
const RATE_PERIOD: Duration = Duration::from_secs(1);
/// For how long a reader may leave the last message of a stream.
const LAST_MESSAGE: Duration = Duration::from_secs(1);

/// Where streams of signals come from.
pub struct SignalSource {
    service: Arc<Service>,
    node: String,
    epoch: AtomicU64,
    draining: AtomicBool,
    /// Ends all streams.
    ending: CancellationToken,
    /// `None`: no sample since the first stream was opened.
    samples: watch::Sender<Option<Arc<Sample>>>,
    /// Whether the sampler runs. Streams are opened, and the sampler ends, under this lock.
    running: Mutex<bool>,
    streams: Arc<Semaphore>,
}

/// What one stream says, in order.
pub type Watching = mpsc::Receiver<Signals>;

impl SignalSource {
    /// The signals of a node with that name; empty: it has none.
    pub fn new(service: Arc<Service>, node: String) -> Arc<Self> {
        Arc::new(Self {
            service,
            node,
            epoch: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            ending: CancellationToken::new(),
            samples: watch::Sender::new(None),
            running: Mutex::new(false),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        })
    }

    /// Name of the node; empty: it has none.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Sets the epoch of the plan in force.
    pub fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::SeqCst);
        self.tell_now();
    }

    /// Tells all streams that the node refuses new requests soon.
    pub fn begin_to_leave(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.tell_now();
    }

    /// Ends all streams.
    pub fn end(&self) {
        self.ending.cancel();
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// The caller expects another node, the interval is out of bounds, or too many streams are open.
    pub fn watch(self: &Arc<Self>, expected: &str, interval_ms: u32) -> Result<Watching, Refusal> {
        let interval = interval(interval_ms).map_err(|wrong| Refusal::new(Reason::Malformed, wrong))?;
        if !self.node.is_empty() && !expected.is_empty() && expected != self.node {
            let shown: String = expected.chars().take(64).collect();
            let wrong =
                format!("node: expected `{}`, which is this node, or nothing, got `{shown}`", self.node);
            return Err(Refusal::new(Reason::Malformed, wrong));
        }
        let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            Refusal::new(
                Reason::QueueFull,
                format!("{STREAMS_MAX} streams of signals are open, which is the most"),
            )
        })?;
        let name = if self.node.is_empty() { expected.chars().take(64).collect() } else { self.node.clone() };
        let (messages, read) = mpsc::channel(1);
        let samples = self.subscribe();
        let told = Told::new(name, interval);
        tokio::spawn(tell(told, samples, messages, self.ending.clone(), permit));
        Ok(read)
    }

    /// Starts the sampler if it does not run.
    fn subscribe(self: &Arc<Self>) -> watch::Receiver<Option<Arc<Sample>>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = self.samples.subscribe();
        if !*running {
            *running = true;
            tokio::spawn(Arc::clone(self).sample());
        }
        samples
    }

    /// Takes samples until no stream is open.
    async fn sample(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rates = Rates::default();
        loop {
            ticks.tick().await;
            {
                let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                if self.samples.receiver_count() == 0 {
                    *running = false;
                    self.samples.send_replace(None);
                    return;
                }
            }
            let models = self.models(&mut rates).await;
            self.samples.send_modify(|sample| {
                *sample = Some(Arc::new(Sample {
                    epoch: self.epoch.load(Ordering::SeqCst),
                    draining: self.draining.load(Ordering::SeqCst),
                    models,
                }));
            });
        }
    }

    /// Changes the last sample, so that streams need not wait for the next one.
    fn tell_now(&self) {
        self.samples.send_modify(|sample| {
            if let Some(sample) = sample {
                let sample = Arc::make_mut(sample);
                sample.epoch = self.epoch.load(Ordering::SeqCst);
                sample.draining = self.draining.load(Ordering::SeqCst);
            }
        });
    }

    /// The models that are served or should be.
    async fn models(&self, rates: &mut Rates) -> BTreeMap<String, ModelSignals> {
        let catalog = self.service.node.catalog();
        // A router that has ended runs nothing, and then no model is ready.
        let forecasts = catalog.router().backlogs().await.unwrap_or_default();
        let forecasts: BTreeMap<u32, _> =
            forecasts.into_iter().map(|forecast| (forecast.model.0, forecast)).collect();
        let names: BTreeSet<String> =
            catalog.wanted_names().into_iter().chain(catalog.serving_names()).collect();
        rates.begin(Instant::now());
        let mut models = BTreeMap::new();
        for name in names {
            let mut signals = ModelSignals { model: name.clone(), ..ModelSignals::default() };
            if let Ok(loaded) = catalog.find(&name, None) {
                let counts = loaded.statistics.counts();
                let failed = counts.failed as f64 * loaded.statistics.mean_rows();
                signals.rate = rates.of(&name, loaded.load, counts.rows as f64 + failed);
                signals.ready = catalog.is_ready(&name);
                if let Some(forecast) = forecasts.get(&loaded.id.0) {
                    signals.pool = forecast.pool;
                    signals.lanes = forecast.lanes;
                    signals.free_in_us = forecast.free_in.0 / 1_000;
                    signals.backlog_us = forecast.backlog.0 / 1_000;
                    signals.row_us = forecast.row_time.0 / 1_000;
                    signals.single_us = forecast.single_time.0 / 1_000;
                    signals.queued_rows = forecast.queued;
                    signals.max_batch = forecast.max_batch;
                }
            }
            models.insert(name, signals);
        }
        rates.end();
        models
    }
}

/// Rows per second of each model in the last full period.
#[derive(Default)]
struct Rates {
    /// Begin of the current period.
    since: Option<Instant>,
    /// Length of the period that ends with this sample. `None`: none ends.
    ended: Option<Duration>,
    models: BTreeMap<String, ModelRate>,
}

struct ModelRate {
    load: u64,
    rows: f64,
    rate: f64,
    seen: bool,
}

impl Rates {
    fn begin(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        self.ended = (passed >= RATE_PERIOD).then_some(passed);
        if self.ended.is_some() {
            self.since = Some(now);
        }
    }

    fn of(&mut self, model: &str, load: u64, rows: f64) -> f64 {
        let ended = self.ended;
        let new = ModelRate { load, rows, rate: 0.0, seen: true };
        let Some(known) = self.models.get_mut(model).filter(|known| known.load == load) else {
            self.models.insert(model.to_owned(), new);
            return 0.0;
        };
        known.seen = true;
        if let Some(passed) = ended {
            known.rate = ((rows - known.rows).max(0.0) / passed.as_secs_f64()).round();
            known.rows = rows;
        }
        known.rate
    }

    /// Forgets models that this sample does not have.
    fn end(&mut self) {
        self.models.retain(|_, rate| std::mem::take(&mut rate.seen));
    }
}

/// Says what changed until the reader leaves or the server ends all streams.
async fn tell(
    mut told: Told,
    mut samples: watch::Receiver<Option<Arc<Sample>>>,
    messages: mpsc::Sender<Signals>,
    ending: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    let begun = Instant::now();
    loop {
        let sample = samples.borrow_and_update().clone();
        let message = sample.and_then(|sample| told.next(begun.elapsed(), &sample));
        if let Some(message) = message
            && messages.send(message).await.is_err()
        {
            return;
        }
        tokio::select! {
            () = messages.closed() => return,
            changed = samples.changed() => if changed.is_err() { return },
            () = ending.cancelled() => break,
        }
    }
    let sample = samples.borrow().clone();
    if let Some(message) = sample.and_then(|sample| told.next(begun.elapsed(), &sample)) {
        // A reader that does not take it learns of the end by that of its stream.
        let _ = messages.send_timeout(message, LAST_MESSAGE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn rates_are_rows_per_second_and_start_at_zero_with_each_load() {
        let mut rates = Rates::default();
        let begun = Instant::now();
        let mut at = |ms, load, rows| {
            rates.begin(begun + Duration::from_millis(ms));
            let rate = rates.of("m", load, rows);
            rates.end();
            rate
        };
        assert_eq!(at(0, 1, 50.0), 0.0);
        assert_eq!(at(500, 1, 100.0), 0.0);
        assert_eq!(at(1_000, 1, 150.0), 100.0);
        assert_eq!(at(1_500, 1, 500.0), 100.0);
        assert_eq!(at(3_000, 1, 150.0), 0.0);
        assert_eq!(at(3_100, 2, 9.0), 0.0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn nothing_runs_without_streams_and_their_number_is_bounded() {
        let front = testing::front().await;
        let source = &front.signals;
        assert!(!*source.running.lock().unwrap());
        let mut open: Vec<_> = (0..STREAMS_MAX).map(|_| source.watch("", 0).unwrap()).collect();
        assert_eq!(source.watch("", 0).err().unwrap().reason, Reason::QueueFull);
        assert!(*source.running.lock().unwrap());
        assert!(open[0].recv().await.unwrap().complete);
        drop(open);
        let ended = async {
            while *source.running.lock().unwrap() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
        let mut again = source.watch("", 0).unwrap();
        assert!(again.recv().await.unwrap().complete, "a sample of now, not of then");
    }
}
