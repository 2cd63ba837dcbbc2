//! Logs: events of `tracing` as log records.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::attribute::{any_text, boolean, float, integer, text};
use crate::export::{Rejected, Signal};
use crate::resource::Resource;
use crate::settings::LogLevel;
use crate::signal::SignalName;
use crate::statistics::{Dropped, Statistics};
use crate::unix_time::unix_nanos;

/// Most attributes of a record. Further ones are counted in it.
const ATTRIBUTES_MAX: usize = 32;
/// Crates whose events are not exported: to export them would cause more of them.
const LEFT_OUT: [&str; 9] =
    ["telemetry", "hyper", "hyper_util", "hyper_rustls", "h2", "tonic", "tower", "rustls", "tokio_rustls"];

/// Connects `tracing` to an exporter: the layer goes into the subscriber, the records into [`Sources`](crate::Sources). Records
/// of before the start of the exporter wait, up to `queue` of them.
pub fn log_layer(level: LogLevel, queue: NonZeroUsize) -> (LogLayer, LogRecords) {
    let (sender, receiver) = mpsc::channel(queue.get());
    let statistics = Arc::new(Statistics::default());
    let layer = LogLayer { level: level.into(), queue: sender, statistics: Arc::clone(&statistics) };
    (layer, LogRecords { queue: receiver, statistics })
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// A layer that exports events. It never waits: if the queue is full, the record is dropped and counted.
#[derive(Debug)]
pub struct LogLayer {
    level: Level,
    queue: mpsc::Sender<Logged>,
    statistics: Arc<Statistics>,
}

/// The records of a [`LogLayer`].
#[derive(Debug)]
pub struct LogRecords {
    pub(crate) queue: mpsc::Receiver<Logged>,
    pub(crate) statistics: Arc<Statistics>,
}

/// A record, and what logged it.
#[derive(Debug)]
pub(crate) struct Logged {
    target: &'static str,
    record: LogRecord,
}

impl<S: Subscriber> Layer<S> for LogLayer {
    // Not `enabled`, which would switch the event off for the other layers, too.
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() > self.level || is_left_out(metadata.target()) {
            return;
        }
        match self.queue.try_reserve() {
            Ok(place) => place.send(Logged { target: metadata.target(), record: record(event) }),
            Err(TrySendError::Full(())) => {
                self.statistics.signal(SignalName::Logs).dropped(Dropped::QueueFull, 1);
            }
            // Logs are off, or the exporter has ended.
            Err(TrySendError::Closed(())) => {}
        }
    }
}

fn is_left_out(target: &str) -> bool {
    target.split("::").next().is_some_and(|name| LEFT_OUT.contains(&name))
}

fn record(event: &Event<'_>) -> LogRecord {
    let level = *event.metadata().level();
    let severity = match level {
        Level::ERROR => SeverityNumber::Error,
        Level::WARN => SeverityNumber::Warn,
        Level::INFO => SeverityNumber::Info,
        Level::DEBUG => SeverityNumber::Debug,
        Level::TRACE => SeverityNumber::Trace,
    };
    let now = unix_nanos(SystemTime::now());
    let mut fields = Fields(LogRecord {
        time_unix_nano: now,
        observed_time_unix_nano: now,
        severity_number: severity.into(),
        severity_text: level.as_str().to_owned(),
        ..LogRecord::default()
    });
    event.record(&mut fields);
    fields.0
}

/// Writes the fields of an event into a record.
struct Fields(LogRecord);

impl Fields {
    fn add(&mut self, attribute: opentelemetry_proto::tonic::common::v1::KeyValue) {
        if self.0.attributes.len() < ATTRIBUTES_MAX {
            self.0.attributes.push(attribute);
        } else {
            self.0.dropped_attributes_count += 1;
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.0.body = Some(any_text(value)),
            name => self.add(text(name, value)),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(integer(field.name(), value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(integer(field.name(), value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(float(field.name(), value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(boolean(field.name(), value));
    }
}

/// Encodes records.
#[derive(Debug)]
pub(crate) struct Logs {
    pub(crate) resource: Resource,
}

impl Signal for Logs {
    type Item = Logged;
    const NAME: SignalName = SignalName::Logs;

    fn encode(&mut self, mut items: Vec<Logged>, _: bool) -> (u64, Vec<u8>) {
        let count = items.len() as u64;
        items.sort_by_key(|logged| logged.target);
        let mut scope_logs: Vec<ScopeLogs> = Vec::new();
        let mut target = None;
        for logged in items {
            if target != Some(logged.target) {
                target = Some(logged.target);
                let name = logged.target.to_owned();
                let scope = Some(InstrumentationScope { name, ..InstrumentationScope::default() });
                scope_logs.push(ScopeLogs { scope, ..ScopeLogs::default() });
            }
            if let Some(scope) = scope_logs.last_mut() {
                scope.log_records.push(logged.record);
            }
        }
        let resource = Some(self.resource.message());
        let resource_logs = ResourceLogs { resource, scope_logs, ..ResourceLogs::default() };
        (count, ExportLogsServiceRequest { resource_logs: vec![resource_logs] }.encode_to_vec())
    }

    fn rejected(response: &[u8]) -> Option<Rejected> {
        let partial = ExportLogsServiceResponse::decode(response).ok()?.partial_success?;
        Rejected::new(partial.rejected_log_records, partial.error_message)
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn logged(level: LogLevel, queue: usize, log: impl FnOnce()) -> (Vec<Logged>, u64) {
        let (layer, mut records) = log_layer(level, NonZeroUsize::new(queue).unwrap());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let found = std::iter::from_fn(|| records.queue.try_recv().ok()).collect();
        (found, records.statistics.signal(SignalName::Logs).dropped_in_total())
    }

    #[test]
    fn an_event_becomes_a_record() {
        let (found, _) = logged(LogLevel::Info, 8, || {
            tracing::warn!(target: "node", model = "m", lane = 3u64, share = 0.5, ready = true, "lane {} failed", 3);
            tracing::debug!(target: "node", "details");
        });
        let [Logged { target: "node", record }] = &found[..] else { panic!("{found:?}") };
        assert_eq!((record.severity_number, record.severity_text.as_str()), (13, "WARN"));
        assert_eq!(record.body, Some(any_text("lane 3 failed")));
        let expected = [text("model", "m"), integer("lane", 3), float("share", 0.5), boolean("ready", true)];
        assert_eq!(record.attributes, expected);
    }

    #[test]
    fn events_of_the_export_are_left_out() {
        let (found, dropped) = logged(LogLevel::Trace, 8, || {
            tracing::error!(target: "telemetry::export::delivery", "telemetry cannot be exported");
            tracing::error!(target: "h2", "reset");
            tracing::error!(target: "hyper_util::client", "closed");
            tracing::error!(target: "h2o", "another crate");
        });
        assert_eq!(found.iter().map(|logged| logged.target).collect::<Vec<_>>(), ["h2o"]);
        assert_eq!(dropped, 0);
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (found, dropped) =
            logged(LogLevel::Info, 2, || (0..5).for_each(|index| tracing::info!(target: "node", index)));
        assert_eq!((found.len(), dropped), (2, 3));
    }

    #[test]
    fn records_of_one_target_share_a_scope() {
        let (found, _) = logged(LogLevel::Info, 8, || {
            tracing::info!(target: "b", "1");
            tracing::info!(target: "a", "2");
            tracing::info!(target: "b", "3");
        });
        let resource = Resource {
            service: "tessera".to_owned(),
            version: "1".to_owned(),
            instance: "a".to_owned(),
            attributes: Vec::new(),
        };
        let (count, message) = Logs { resource }.encode(found, false);
        let request = ExportLogsServiceRequest::decode(&*message).unwrap();
        let sizes: Vec<usize> =
            request.resource_logs[0].scope_logs.iter().map(|scope| scope.log_records.len()).collect();
        assert_eq!((count, sizes), (3, vec![1, 2]));
    }
}
