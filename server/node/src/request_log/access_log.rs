//! The access log: one JSON line a request, written by a thread of its own. Requests never wait for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::{AccessLogRequests, RequestLogSettings};
use crate::metrics::names;
use crate::tenants::TenantNames;
use metrics::Counter;

use super::{Entry, Explanation, Outcome};

/// Entries that wait for the disk.
const WAITING_MAX: usize = 4096;
/// Time between two looks at whether the file was moved away, and between two warnings.
const LOOK: Duration = Duration::from_secs(1);
/// A file name that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// Where entries are put.
pub struct AccessLog {
    queue: SyncSender<Entry>,
    lost: Counter,
    requests: AccessLogRequests,
    /// Of those in time, one in this many is written.
    one_in: u64,
    in_time: AtomicU64,
}

impl AccessLog {
    /// Opens the file and starts the thread. `None` if no access log is set.
    ///
    /// # Errors
    /// Why the file cannot be written to.
    pub fn start(settings: &RequestLogSettings, tenants: TenantNames) -> Result<Option<Self>, String> {
        let Some(path) = settings.access_log.clone() else { return Ok(None) };
        let unusable =
            |error: io::Error| format!("request_log.access_log: cannot write `{}`: {error}", path.display());
        let output = Output::open(path.clone()).map_err(unusable)?;
        let (queue, entries) = sync_channel(WAITING_MAX);
        let lost = metrics::counter!(names::ACCESS_LOG_LOST.name);
        let writing = lost.clone();
        let spawned = thread::Builder::new().name("tessera-access".to_owned());
        spawned.spawn(move || write(output, &entries, &tenants, &writing)).map_err(unusable)?;
        Ok(Some(Self {
            queue,
            lost,
            requests: settings.access_log_requests,
            one_in: u64::from(settings.access_log_one_in.get()),
            in_time: AtomicU64::new(0),
        }))
    }

    /// Queues a request, or counts it as lost if the queue is full.
    pub fn note(&self, entry: &Entry) {
        let in_time = entry.outcome == Outcome::InTime;
        let wanted = match self.requests {
            AccessLogRequests::All => {
                !in_time || self.in_time.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in)
            }
            AccessLogRequests::Unsuccessful => !in_time,
        };
        if wanted && self.queue.try_send(entry.clone()).is_err() {
            self.lost.increment(1);
        }
    }
}

/// Standard output, or a file that is opened again after it was moved away.
enum Output {
    Standard(io::Stdout),
    File { path: PathBuf, file: File, looked: Instant },
}

impl Output {
    fn open(path: PathBuf) -> io::Result<Self> {
        if path.as_os_str() == STANDARD_OUTPUT {
            return Ok(Self::Standard(io::stdout()));
        }
        let file = append(&path)?;
        Ok(Self::File { path, file, looked: Instant::now() })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Standard(output) => output.write_all(lines).and_then(|()| output.flush()),
            Self::File { path, file, looked } => {
                if looked.elapsed() >= LOOK {
                    *looked = Instant::now();
                    let there = std::fs::metadata(&*path).ok().map(|there| (there.dev(), there.ino()));
                    let ours = file.metadata().ok().map(|ours| (ours.dev(), ours.ino()));
                    if there != ours {
                        *file = append(path)?;
                    }
                }
                file.write_all(lines)
            }
        }
    }
}

fn append(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Writes entries until the log is dropped. Entries that wait together are written together.
fn write(mut output: Output, entries: &Receiver<Entry>, tenants: &TenantNames, lost: &Counter) {
    let mut lines = Vec::new();
    let mut warned: Option<Instant> = None;
    while let Ok(first) = entries.recv() {
        let mut count = 0;
        for entry in std::iter::once(first).chain(entries.try_iter().take(WAITING_MAX)) {
            count += 1;
            if serde_json::to_writer(&mut lines, &Explanation::of_entry(&entry, &tenants.of(entry.tenant)))
                .is_ok()
            {
                lines.push(b'\n');
            }
        }
        if let Err(error) = output.write(&lines) {
            lost.increment(count);
            if warned.is_none_or(|warned| warned.elapsed() >= LOOK) {
                tracing::warn!(%error, lost = count, "the access log is not written");
                warned = Some(Instant::now());
            }
        }
        lines.clear();
    }
}
