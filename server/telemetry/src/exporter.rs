//! The exporter of a server: what it offers to requests, and the tasks that it runs.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::export::{Client, Delivery, Flush, InvalidEndpoint, Signal, Worker};
use crate::ids::IdSource;
use crate::logs::{LogRecords, Logs};
use crate::metrics::{MetricsWorker, RenderMetrics};
use crate::request::{Ended, Request};
use crate::resource::Resource;
use crate::sampling::Sampler;
use crate::settings::Settings;
use crate::statistics::Statistics;
use crate::traces::{Recorder, Traces};

/// What is exported, apart from requests.
pub struct Sources {
    /// Source of the ids of spans. The server uses it for the contexts of requests, too.
    pub ids: Arc<IdSource>,
    /// What the collector's certificate is checked with. Needed if the endpoint is `https`.
    pub tls: Option<Arc<ClientConfig>>,
    /// Renders the metrics. `None` exports no metrics.
    pub metrics: Option<RenderMetrics>,
    /// When the server began to count its metrics.
    pub started: SystemTime,
    /// The log records. `None` exports no logs.
    pub logs: Option<LogRecords>,
}

impl Sources {
    /// Requests only.
    pub fn new(ids: Arc<IdSource>) -> Self {
        Self { ids, tls: None, metrics: None, started: SystemTime::now(), logs: None }
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// Exports telemetry until it is dropped.
#[derive(Debug)]
pub struct Exporter {
    /// `None` if traces are off.
    recorder: Option<Recorder>,
    statistics: Arc<Statistics>,
    tasks: Vec<Task>,
}

/// The task of one signal.
#[derive(Debug)]
struct Task {
    flushes: mpsc::Sender<Flush>,
    hurry: Arc<Notify>,
    running: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Exporter {
    /// Starts the tasks of all signals that are on, in the runtime of the caller. The collector need not be there.
    ///
    /// # Errors
    /// Says which setting of the connection is wrong.
    pub fn start(
        settings: &Settings,
        resource: &Resource,
        sources: Sources,
    ) -> Result<Self, InvalidEndpoint> {
        let Sources { ids, tls, metrics, started, logs } = sources;
        // The layer of the logs already counts.
        let statistics = logs.as_ref().map(|logs| Arc::clone(&logs.statistics)).unwrap_or_default();
        let client = Client::new(settings, tls.as_deref())?;
        let delivery = |hurry: &Arc<Notify>, retry_for| Delivery {
            client: client.clone(),
            statistics: Arc::clone(&statistics),
            ids: Arc::clone(&ids),
            hurry: Arc::clone(hurry),
            retry_for,
        };
        let mut tasks = Vec::new();
        let mut recorder = None;
        if settings.traces {
            let (sender, queue) = mpsc::channel(settings.queue.get());
            let sampler = Sampler::new(settings.sample, settings.limit);
            recorder = Some(Recorder::new(sampler, sender, Arc::clone(&statistics)));
            let traces = Traces::new(resource.clone(), Arc::clone(&ids));
            tasks.push(Task::of_signal(traces, queue, settings.delay, |hurry| {
                delivery(hurry, settings.retry_for)
            }));
        }
        if let Some(LogRecords { queue, .. }) = logs.filter(|_| settings.logs) {
            let logs = Logs { resource: resource.clone() };
            tasks.push(Task::of_signal(logs, queue, settings.delay, |hurry| {
                delivery(hurry, settings.retry_for)
            }));
        }
        if let Some(render) = metrics.filter(|_| settings.metrics) {
            let (flushes, flush_queue) = mpsc::channel(1);
            let hurry = Arc::new(Notify::new());
            let worker = MetricsWorker {
                render,
                resource: resource.clone(),
                started,
                period: settings.period,
                flushes: flush_queue,
                // The next export has later values of the same metrics.
                delivery: delivery(&hurry, settings.period),
            };
            tasks.push(Task { flushes, hurry, running: tokio::spawn(worker.run()).abort_handle() });
        }
        Ok(Self { recorder, statistics, tasks })
    }

    /// Offers a request that has ended. Only if it is kept, `request` is called to make all that its spans show. Never waits.
    pub fn record(&self, ended: &Ended<'_>, request: impl FnOnce() -> Request) {
        if let Some(recorder) = &self.recorder {
            recorder.record(ended, request);
        }
    }

    /// What was exported and what was dropped.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Exports everything that waits. False if that took longer than the timeout; what still waits then is lost when the exporter
    /// is dropped.
    pub async fn flush(&self, timeout: Duration) -> bool {
        let all = async {
            let mut answers = Vec::new();
            for task in &self.tasks {
                let (done, answer) = oneshot::channel();
                task.hurry.notify_one();
                if task.flushes.send(done).await.is_ok() {
                    answers.push(answer);
                }
            }
            for answer in answers {
                // A task that has ended has nothing left to export.
                let _ = answer.await;
            }
        };
        tokio::time::timeout(timeout, all).await.is_ok()
    }
}

impl Task {
    fn of_signal<S: Signal>(
        signal: S,
        queue: mpsc::Receiver<S::Item>,
        delay: Duration,
        delivery: impl FnOnce(&Arc<Notify>) -> Delivery,
    ) -> Self {
        let (flushes, flush_queue) = mpsc::channel(1);
        let hurry = Arc::new(Notify::new());
        let delivery = delivery(&hurry);
        let worker = Worker { signal, queue, flushes: flush_queue, delivery, delay };
        Self { flushes, hurry, running: tokio::spawn(worker.run()).abort_handle() }
    }
}
