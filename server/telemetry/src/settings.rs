//! Where telemetry goes, as the configuration says.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How OTLP is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// gRPC, usually on port 4317.
    #[default]
    Grpc,
    /// Protobuf over HTTP/1.1, usually on port 4318.
    Http,
}

/// The least severe log events that are exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// An operator must act.
    Error,
    /// An operator may act.
    Warn,
    /// What the server does.
    #[default]
    Info,
    /// Details for developers.
    Debug,
    /// Every event.
    Trace,
}

/// Headers of every export, for example with a token. `Debug` shows their names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub BTreeMap<String, String>);

impl fmt::Debug for Headers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_map().entries(self.0.keys().map(|name| (name, "***"))).finish()
    }
}

/// Where telemetry goes and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// URL of the collector, `http` or `https`. Over HTTP, `/v1/traces` and so on are appended to its path.
    pub endpoint: String,
    /// How OTLP is sent.
    pub protocol: Protocol,
    /// Whether traces are exported.
    pub traces: bool,
    /// Whether metrics are exported.
    pub metrics: bool,
    /// Whether logs are exported.
    pub logs: bool,
    /// The least severe log events that are exported.
    pub log_level: LogLevel,
    /// Of the requests that no other cause keeps, 1 in this many is kept.
    pub sample: NonZeroU32,
    /// Most requests per second that are kept for each cause, such as "failed". More are counted and not kept.
    pub limit: NonZeroU32,
    /// Most requests, and most log records, that wait for export. More are counted and dropped.
    pub queue: NonZeroUsize,
    /// How long spans and log records wait for others to be sent with.
    pub delay: Duration,
    /// Time between two exports of metrics.
    pub period: Duration,
    /// How long one attempt to send may take.
    pub timeout: Duration,
    /// How long a message of spans or log records is tried at most.
    pub retry_for: Duration,
    /// Headers of every export, for example with a token.
    pub headers: Headers,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            endpoint: "http://localhost:4317".to_owned(),
            protocol: Protocol::Grpc,
            traces: true,
            metrics: true,
            logs: true,
            log_level: LogLevel::Info,
            sample: NonZeroU32::MIN.saturating_add(99),
            limit: NonZeroU32::MIN.saturating_add(99),
            queue: NonZeroUsize::MIN.saturating_add(4095),
            delay: Duration::from_secs(1),
            period: Duration::from_secs(15),
            timeout: Duration::from_secs(10),
            retry_for: Duration::from_secs(60),
            headers: Headers::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let headers = Headers(BTreeMap::from([("authorization".to_owned(), "Bearer secret".to_owned())]));
        let shown = format!("{:?}", Settings { headers, ..Settings::default() });
        assert!(shown.contains("authorization") && !shown.contains("secret"), "{shown}");
    }
}
