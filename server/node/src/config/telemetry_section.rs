//! `[telemetry]`: OpenTelemetry over OTLP.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use documented::{Documented, DocumentedFields};
use models::TimeSpan;
use serde::{Deserialize, Serialize};
use telemetry::{LogLevel, Protocol};

/// Largest file of headers.
const HEADERS_BYTES_MAX: u64 = 64 << 10;
/// Least and most of the times in this section.
const TIMES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(86_400));

/// `[telemetry]`: OpenTelemetry: traces, metrics and logs, sent to a collector over OTLP.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// URL of the collector, `http` or `https`. With `protocol = "http"`, `/v1/traces` and so on are appended. Default: none,
    /// nothing is sent. Example: `"http://127.0.0.1:4317"`.
    pub endpoint: Option<String>,
    /// How OTLP is sent: `grpc`, usually to port 4317, or `http` with Protobuf, usually to port 4318.
    pub protocol: Protocol,
    /// Sends spans of requests and of batches. The headers `traceparent` and `tracestate` of a request say which trace it is part of.
    pub traces: bool,
    /// Sends what `/metrics` shows, every `telemetry.period`.
    pub metrics: bool,
    /// Sends what is logged.
    pub logs: bool,
    /// The least severe log events that are sent: `error`, `warn`, `info`, `debug` or `trace`. Events that `server.log_level` leaves
    /// out are not sent either.
    pub log_level: LogLevel,
    /// Refused, failed and late requests, the slowest 1 % of a model, and those whose client keeps the trace are sent. Of all others
    /// 1 in this many is, chosen by trace id.
    pub sample: NonZeroU32,
    /// Most requests per second that are sent for each of these causes. Further ones are counted.
    pub limit: NonZeroU32,
    /// Most requests, and most log events, that wait to be sent. Further ones are dropped and counted: a collector that does not
    /// answer delays no request.
    pub queue: NonZeroUsize,
    /// How long spans and log events wait for others to be sent with.
    #[serde(serialize_with = "units::text")]
    pub delay: TimeSpan,
    /// Time between two exports of metrics.
    #[serde(serialize_with = "units::text")]
    pub period: TimeSpan,
    /// Time for one attempt to send.
    #[serde(serialize_with = "units::text")]
    pub timeout: TimeSpan,
    /// File of headers to send, one `NAME: VALUE` a line, such as a token of the collector. Default: none. Example:
    /// `"/etc/tessera/otlp-headers"`.
    pub headers_file: Option<PathBuf>,
    /// File of certificates in PEM that the collector's certificate is checked with. Default: the authorities of the system. Example:
    /// `"/etc/tessera/collector-ca.crt"`.
    pub ca: Option<PathBuf>,
    /// `service.name` of what is sent.
    pub service_name: String,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: Protocol::default(),
            traces: true,
            metrics: true,
            logs: true,
            log_level: LogLevel::default(),
            sample: NonZeroU32::MIN.saturating_add(99),
            limit: NonZeroU32::MIN.saturating_add(99),
            queue: NonZeroUsize::MIN.saturating_add(4095),
            delay: TimeSpan(Duration::from_secs(1)),
            period: TimeSpan(Duration::from_secs(15)),
            timeout: TimeSpan(Duration::from_secs(10)),
            headers_file: None,
            ca: None,
            service_name: "tessera".to_owned(),
        }
    }
}

impl Telemetry {
    /// Reports values that types do not exclude.
    pub(super) fn check(&self, report: &mut impl FnMut(&str, String)) {
        for (path, time) in [
            ("telemetry.delay", self.delay),
            ("telemetry.period", self.period),
            ("telemetry.timeout", self.timeout),
        ] {
            let (least, most) = TIMES;
            if !(least..=most).contains(&time.0) {
                report(path, format!("{time}: expected {} to {}", TimeSpan(least), TimeSpan(most)));
            }
        }
        if let Err((path, reason)) = self.settings() {
            report(path, reason);
        } else if self.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("https:"))
            && let Err(reason) = identity::client_tls(self.ca.as_deref())
        {
            report("telemetry.ca", reason);
        }
    }

    /// What the exporter is started with. `None`: nothing is sent.
    ///
    /// # Errors
    /// The setting that cannot be used, and why.
    pub fn settings(&self) -> Result<Option<telemetry::Settings>, (&'static str, String)> {
        let Some(endpoint) = self.endpoint.clone() else { return Ok(None) };
        let headers = self.headers_file.as_deref().map(read_headers).transpose();
        let settings = telemetry::Settings {
            endpoint,
            protocol: self.protocol,
            traces: self.traces,
            metrics: self.metrics,
            logs: self.logs,
            log_level: self.log_level,
            sample: self.sample,
            limit: self.limit,
            queue: self.queue,
            delay: self.delay.0,
            period: self.period.0,
            timeout: self.timeout.0,
            headers: headers.map_err(|reason| ("telemetry.headers_file", reason))?.unwrap_or_default(),
            ..telemetry::Settings::default()
        };
        telemetry::check_connection(&settings).map_err(|mistake| {
            let setting = match mistake {
                telemetry::InvalidEndpoint::Header(_) => "telemetry.headers_file",
                _ => "telemetry.endpoint",
            };
            (setting, mistake.to_string())
        })?;
        Ok(Some(settings))
    }
}

/// Reads lines of `NAME: VALUE`. Empty lines and lines that start with `#` are skipped. Errors name the line, never a value.
fn read_headers(path: &Path) -> Result<telemetry::Headers, String> {
    let shown = path.display();
    let length = std::fs::metadata(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?.len();
    if length > HEADERS_BYTES_MAX {
        return Err(format!("`{shown}` has {length} bytes: expected at most {HEADERS_BYTES_MAX}"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let mut headers = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(format!("`{shown}`, line {number}: expected `NAME: VALUE`"));
        };
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok(telemetry::Headers(headers))
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Sources};

    fn load(text: &str) -> Result<Config, String> {
        let sources = Sources { file: Some(("tessera.toml".into(), text.to_owned())), ..Sources::default() };
        Config::load(&sources).map_err(|problems| problems.to_string())
    }

    #[test]
    fn nothing_is_sent_by_default() {
        assert!(load("").unwrap().telemetry.settings().unwrap().is_none());
    }

    #[test]
    fn headers_come_from_a_file_and_errors_repeat_no_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        std::fs::write(&path, "# token\nAuthorization: Bearer secret\n\nx-team: a:b\n").unwrap();
        let text = format!("[telemetry]\nendpoint = \"http://127.0.0.1:4317\"\nheaders_file = {path:?}\n");
        let settings = load(&text).unwrap().telemetry.settings().unwrap().unwrap();
        let headers: Vec<_> =
            settings.headers.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(headers, ["authorization=Bearer secret", "x-team=a:b"]);
        std::fs::write(&path, "x-team: a\nsecret\n").unwrap();
        let mistake = load(&text).unwrap_err();
        assert!(mistake.starts_with("telemetry.headers_file: ") && mistake.contains("line 2"), "{mistake}");
        assert!(!mistake.contains("secret"), "{mistake}");
    }

    #[test]
    fn mistakes_name_their_key() {
        let mistake = load("[telemetry]\nperiod = \"0s\"").unwrap_err();
        assert!(
            mistake.starts_with("telemetry.period: ") && mistake.contains("expected 1ms to "),
            "{mistake}"
        );
        for text in ["protocol = \"udp\"", "log_level = \"loud\"", "sample = 0", "endpoint = 1"] {
            let mistake = load(&format!("[telemetry]\n{text}")).unwrap_err();
            assert!(mistake.starts_with("telemetry."), "{mistake}");
        }
        let mistake = load("[telemetry]\nendpoint = \"collector\"").unwrap_err();
        assert!(mistake.starts_with("telemetry.endpoint: "), "{mistake}");
    }
}
