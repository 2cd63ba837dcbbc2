//! Where telemetry goes, as the configuration says.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// How OTLP is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// gRPC, usually on port 4317.
    #[default]
    Grpc,
    /// Protobuf over HTTP/1.1, usually on port 4318.
    Http,
}

/// The least severe log events that are exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
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
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<String, String>);

impl fmt::Debug for Headers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_map().entries(self.0.keys().map(|name| (name, "***"))).finish()
    }
}

/// Where telemetry goes and how much of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    /// How long spans and log records wait for others to be sent with. Read in seconds.
    #[serde(deserialize_with = "seconds")]
    pub delay: Duration,
    /// Time between two exports of metrics. Read in seconds.
    #[serde(deserialize_with = "seconds")]
    pub period: Duration,
    /// How long one attempt to send may take. Read in seconds.
    #[serde(deserialize_with = "seconds")]
    pub timeout: Duration,
    /// Headers of every export, for example with a token.
    pub headers: Headers,
    /// File with certificates of authorities that the collector's certificate is checked with, in PEM. The caller reads it and
    /// passes the result in [`Sources::tls`](crate::Sources::tls). `None`: the authorities of the system.
    pub ca: Option<PathBuf>,
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
            headers: Headers::default(),
            ca: None,
        }
    }
}

/// A positive number of seconds, of at most a day.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(from)?;
    if (0.001..=86_400.0).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(Error::custom(format!("expected 0.001 to 86400 seconds, got {seconds}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_a_default() {
        assert_eq!(toml::from_str::<Settings>("").unwrap(), Settings::default());
        let settings = Settings::default();
        assert_eq!((settings.sample.get(), settings.limit.get(), settings.queue.get()), (100, 100, 4096));
    }

    #[test]
    fn settings_are_read_and_secrets_are_not_shown() {
        let text = "endpoint = \"https://collector:4318\"\nprotocol = \"http\"\nlogs = false\nsample = 10\ntimeout = 0.5\n\
                    headers = { authorization = \"Bearer secret\" }";
        let settings: Settings = toml::from_str(text).unwrap();
        assert_eq!((settings.protocol, settings.logs, settings.sample.get()), (Protocol::Http, false, 10));
        assert_eq!(settings.timeout, Duration::from_millis(500));
        let shown = format!("{settings:?}");
        assert!(shown.contains("authorization") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn zero_and_unknown_keys_are_refused() {
        for text in
            ["sample = 0", "queue = 0", "sampel = 1", "protocol = \"udp\"", "timeout = 0.0", "delay = nan"]
        {
            assert!(toml::from_str::<Settings>(text).is_err(), "{text}");
        }
    }
}
