//! The thread that writes traces.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use metrics::Counter;
use node::metrics::names;
use tokio::sync::oneshot;

use super::files::Files;
use super::record::Record;

/// Traces that wait for the disk.
const WAITING_MAX: usize = 4096;
/// Time between two warnings.
const WARNINGS: Duration = Duration::from_secs(10);

enum Message {
    Write(Box<Record>),
    Flush(oneshot::Sender<()>),
}

/// Where traces are put. Clones share the queue.
#[derive(Clone)]
pub(super) struct Sink {
    queue: SyncSender<Message>,
    lost: Counter,
    /// Traces that did not fit, since the thread looked.
    excess: Arc<AtomicU64>,
}

impl Sink {
    /// Queues a trace, or counts it as lost if the queue is full.
    pub fn put(&self, record: Record) {
        match self.queue.try_send(Message::Write(Box::new(record))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.increment(1);
                self.excess.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The writer of one folder.
pub(super) struct Writer(Sink);

impl Writer {
    /// Creates the folder and starts the thread.
    pub fn start(folder: &Path, max_bytes: u64) -> Result<Self, String> {
        let unusable =
            |error: std::io::Error| format!("trace.dir: cannot use `{}`: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let (queue, messages) = sync_channel(WAITING_MAX);
        let lost = metrics::counter!(names::TRACES_LOST.name);
        let excess = Arc::<AtomicU64>::default();
        let writing = Loop {
            excess: Arc::clone(&excess),
            files: Files::new(folder, max_bytes),
            written: metrics::counter!(names::TRACES.name),
            lost: lost.clone(),
            unreported: 0,
            warned: None,
        };
        let spawned = thread::Builder::new().name("tessera-traces".to_owned());
        spawned.spawn(move || writing.run(&messages)).map_err(unusable)?;
        Ok(Self(Sink { queue, lost, excess }))
    }

    pub fn sink(&self) -> Sink {
        self.0.clone()
    }

    /// Waits until all traces before are written. False if that takes longer than `timeout`.
    pub async fn flush(&self, timeout: Duration) -> bool {
        let (done, written) = oneshot::channel();
        let queue = self.0.queue.clone();
        // A full queue blocks, and the runtime would wait for its own threads.
        thread::spawn(move || drop(queue.send(Message::Flush(done))));
        matches!(tokio::time::timeout(timeout, written).await, Ok(Ok(())))
    }
}

struct Loop {
    files: Files,
    written: Counter,
    lost: Counter,
    excess: Arc<AtomicU64>,
    /// Traces lost since the last warning.
    unreported: u64,
    warned: Option<Instant>,
}

impl Loop {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Write(record) => match self.files.add(&record.target, &record.json()) {
                    Ok(()) => self.written.increment(1),
                    Err(error) => {
                        self.lost.increment(1);
                        self.warn(1, &error);
                    }
                },
                // The wait may have timed out.
                Message::Flush(done) => drop(done.send(())),
            }
            match self.excess.swap(0, Ordering::Relaxed) {
                0 => {}
                excess => self.warn(excess, &format_args!("{WAITING_MAX} traces wait for the disk already")),
            }
        }
    }

    fn warn(&mut self, lost: u64, error: &dyn fmt::Display) {
        self.unreported = self.unreported.saturating_add(lost);
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNINGS) {
            tracing::warn!(lost = self.unreported, %error, "traces are not written");
            self.warned = Some(Instant::now());
            self.unreported = 0;
        }
    }
}
