//! Triton's traces: when each stage of a request began and ended, in a JSON file.
//!
//! `settings` decides which requests are traced, `request` collects the trace of one, and `writer` writes files on a thread of its
//! own. A request never waits for a file: a trace that does not fit into the writer's queue is lost and counted.

mod files;
mod record;
mod request;
mod settings;
mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node::config;
use node::reason::{Reason, Refusal};

pub use record::Stage;
pub use request::{SendEnd, Trace};
pub use settings::{LEVEL, SentValue};

use record::{Origin, Record};
use settings::{Settings, Values};
use writer::Writer;

/// The trace settings of the server and of its models, and where traces go.
pub struct Traces {
    /// Whether any request may be traced. Without traces, this is all that a request reads.
    on: AtomicBool,
    settings: Mutex<Settings>,
    writer: Option<Writer>,
    latest_id: AtomicU64,
    origin: Origin,
}

impl Traces {
    /// Traces as `[trace]` says.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn new(config: &config::Trace) -> Result<Self, String> {
        let writer = config.dir.as_deref().map(|dir| Writer::start(dir, config.max_bytes.0)).transpose()?;
        let start = Values {
            timestamps: config.level == config::TraceLevel::Timestamps,
            rate: config.rate.get(),
            count: config.count,
            log_frequency: config.log_frequency,
            file: if writer.is_some() { config.file.as_str().into() } else { "".into() },
        };
        let settings = Settings::new(start);
        Ok(Self {
            on: AtomicBool::new(settings.any_on()),
            settings: Mutex::new(settings),
            writer,
            latest_id: AtomicU64::new(0),
            origin: Origin::now(),
        })
    }

    /// Whether a request may have to be traced.
    pub fn on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The trace of a request to a loaded version, if this request is one to trace.
    pub fn sample(&self, model: &str, version: u64) -> Option<Arc<Trace>> {
        let writer = self.writer.as_ref()?;
        let mut settings = self.lock();
        let chosen = settings.sample(model)?;
        self.on.store(settings.any_on(), Ordering::Relaxed);
        drop(settings);
        let record = Record {
            id: self.latest_id.fetch_add(1, Ordering::Relaxed).saturating_add(1),
            target: chosen,
            model: model.to_owned(),
            version,
            request_id: String::new(),
            timestamps: Vec::with_capacity(record::STAGES_MAX),
        };
        Some(Arc::new(Trace::new(record, writer.sink(), self.origin)))
    }

    /// The settings of a model, or of the server, by name.
    pub fn settings(&self, model: Option<&str>) -> BTreeMap<&'static str, Vec<String>> {
        self.lock().values(model).show()
    }

    /// Changes settings of a model, or of the server, all of them or none. `None` as value returns a setting of a model to that of
    /// the server, and one of the server to that of its start.
    ///
    /// # Errors
    /// Names the setting that is unknown, has a wrong value, or contradicts another. The words are Triton's where it has the error.
    pub fn change(&self, model: Option<&str>, sent: Vec<(String, SentValue)>) -> Result<(), Refusal> {
        let mut changes = Vec::with_capacity(sent.len());
        for (name, value) in sent {
            changes.extend(settings::read(&name, value, self.writer.is_some())?);
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mut settings = self.lock();
        settings.change(model, changes).map_err(|message| {
            let hint = if self.writer.is_none() {
                ": traces may be written only if `trace.dir` is set in the server's configuration"
            } else {
                ""
            };
            Refusal::new(Reason::Malformed, format!("{message}{hint}"))
        })?;
        self.on.store(settings.any_on(), Ordering::Relaxed);
        Ok(())
    }

    /// Writes what is queued, within `timeout`.
    pub async fn flush(&self, timeout: Duration) {
        if let Some(writer) = &self.writer
            && !writer.flush(timeout).await
        {
            tracing::warn!("some traces were not written in time");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
