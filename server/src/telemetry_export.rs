//! Starts the export of traces, metrics and logs over OTLP, as `[telemetry]` says.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;
use node::config::Telemetry;
use node::request_log::Spans;
use telemetry::{Exporter, IdSource, LogLayer, LogRecords, Resource, Settings, Sources, log_layer};

/// What a server exports: its settings and its log events.
pub struct Exported {
    settings: Settings,
    tls: Option<std::path::PathBuf>,
    service: String,
    logs: Option<LogRecords>,
}

impl Exported {
    /// What `[telemetry]` says, and the layer that takes log events to it. `None`: nothing is exported.
    ///
    /// # Errors
    /// Names the setting that cannot be used.
    pub fn of(config: &Telemetry) -> anyhow::Result<Option<(Self, Option<LogLayer>)>> {
        let settings = config.settings().map_err(|(path, reason)| anyhow::anyhow!("{path}: {reason}"))?;
        let Some(settings) = settings else { return Ok(None) };
        let (layer, logs) = if settings.logs {
            let (layer, records) = log_layer(settings.log_level, settings.queue);
            (Some(layer), Some(records))
        } else {
            (None, None)
        };
        let exported = Self { settings, tls: config.ca.clone(), service: config.service_name.clone(), logs };
        Ok(Some((exported, layer)))
    }

    /// Starts the export in the current runtime.
    ///
    /// # Errors
    /// Names the setting that cannot be used.
    pub fn start(self, recorder: &PrometheusHandle) -> anyhow::Result<Spans> {
        let ids = Arc::new(IdSource::seeded().context("the system has no random numbers")?);
        let is_tls = self.settings.endpoint.starts_with("https:");
        let tls = is_tls.then(|| identity::client_tls(self.tls.as_deref())).transpose();
        let tls = tls.map_err(|reason| anyhow::anyhow!("telemetry.ca: {reason}"))?;
        let recorder = recorder.clone();
        let sources = Sources {
            tls,
            metrics: Some(Arc::new(move || {
                node::metrics::process_read();
                recorder.render()
            })),
            started: SystemTime::now(),
            logs: self.logs,
            ..Sources::new(Arc::clone(&ids))
        };
        let resource = Resource {
            service: self.service,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: ids.trace_id().to_string(),
            attributes: vec![("host.name".to_owned(), host_name())],
        };
        let exporter = Exporter::start(&self.settings, &resource, sources)
            .map_err(|mistake| anyhow::anyhow!("telemetry.endpoint: {mistake}"))?;
        tracing::info!(endpoint = self.settings.endpoint, "exporting telemetry");
        Ok(Spans { ids, exporter: Arc::new(exporter) })
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
