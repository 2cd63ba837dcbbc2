//! Metrics: what the server renders for Prometheus, sent over OTLP at regular times.
//!
//! The server counts everything once. This module reads its own text format instead of counting again, so that both show the
//! same figures.

mod convert;
mod exposition;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::export::{Delivery, Flush, Rejected};
use crate::resource::{Resource, scope};
use crate::signal::SignalName;
use crate::unix_time::unix_nanos;
use convert::Times;

/// Most data points of one message. A histogram has about 500 bytes, and collectors take 4 MiB.
const POINTS_MAX: usize = 2000;

/// Renders all metrics in the text format of Prometheus.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Exports metrics.
pub(crate) struct MetricsWorker {
    pub(crate) render: RenderMetrics,
    pub(crate) resource: Resource,
    /// When the server began to count.
    pub(crate) started: SystemTime,
    pub(crate) period: Duration,
    pub(crate) flushes: mpsc::Receiver<Flush>,
    pub(crate) delivery: Delivery,
}

impl fmt::Debug for MetricsWorker {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("MetricsWorker").finish_non_exhaustive()
    }
}

impl MetricsWorker {
    /// Runs until the exporter is dropped.
    pub(crate) async fn run(mut self) {
        let mut ticks = tokio::time::interval_at(Instant::now() + self.period, self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                flush = self.flushes.recv() => {
                    let Some(done) = flush else { return };
                    self.export().await;
                    // The caller may have stopped waiting.
                    let _ = done.send(());
                }
                _ = ticks.tick() => self.export().await,
            }
        }
    }

    async fn export(&mut self) {
        let (render, started, resource) = (Arc::clone(&self.render), self.started, self.resource.clone());
        // A server with a thousand models renders a megabyte, which would hold up a network thread.
        let rendered =
            tokio::task::spawn_blocking(move || messages(&render(), started, SystemTime::now(), &resource));
        let Ok(messages) = rendered.await else {
            tracing::error!("the metrics could not be rendered");
            return;
        };
        for (count, message) in messages {
            self.delivery.deliver(SignalName::Metrics, message.into(), count, rejected).await;
        }
    }
}

/// The encoded export requests of a text, each with the number of its data points.
fn messages(text: &str, started: SystemTime, read: SystemTime, resource: &Resource) -> Vec<(u64, Vec<u8>)> {
    let times = Times { started: unix_nanos(started), read: unix_nanos(read) };
    let mut messages = Vec::new();
    let mut waiting = (0, Vec::new());
    for family in exposition::parse(text) {
        for (points, metric) in convert::metrics(&family, times, POINTS_MAX) {
            if waiting.0 + points > POINTS_MAX {
                messages.push(std::mem::take(&mut waiting));
            }
            waiting.0 += points;
            waiting.1.push(metric);
        }
    }
    messages.push(waiting);
    let filled = messages.into_iter().filter(|(points, _)| *points > 0);
    filled.map(|(points, metrics)| (points as u64, encoded(metrics, resource))).collect()
}

fn encoded(metrics: Vec<Metric>, resource: &Resource) -> Vec<u8> {
    let scope_metrics = ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() };
    let resource_metrics = ResourceMetrics {
        resource: Some(resource.message()),
        scope_metrics: vec![scope_metrics],
        ..ResourceMetrics::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }.encode_to_vec()
}

fn rejected(response: &[u8]) -> Option<Rejected> {
    let partial = ExportMetricsServiceResponse::decode(response).ok()?.partial_success?;
    Rejected::new(partial.rejected_data_points, partial.error_message)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;

    use super::*;

    fn requests(text: &str) -> Vec<(u64, Vec<Metric>)> {
        let resource = Resource {
            service: "tessera".to_owned(),
            version: "1".to_owned(),
            instance: "a".to_owned(),
            attributes: Vec::new(),
        };
        let messages = messages(text, SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH, &resource);
        let decoded = messages.into_iter().map(|(points, message)| {
            let mut request = ExportMetricsServiceRequest::decode(&*message).unwrap();
            (points, std::mem::take(&mut request.resource_metrics[0].scope_metrics[0].metrics))
        });
        decoded.collect()
    }

    #[test]
    fn many_data_points_go_into_several_messages() {
        let line =
            |name: usize| format!("# TYPE g{name} gauge\ng{name}{{a=\"1\"}} 1\ng{name}{{a=\"2\"}} 1\n");
        let several = requests(&(0..1500).map(line).collect::<String>());
        let sizes: Vec<_> = several.iter().map(|(points, metrics)| (*points, metrics.len())).collect();
        assert_eq!(sizes, [(2000, 1000), (1000, 500)]);
        assert!(requests("").is_empty());
    }

    #[test]
    fn the_text_of_the_recorder_that_the_server_uses_is_understood() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new()
            .set_buckets(&[0.01, 0.1])
            .unwrap()
            .build_recorder();
        let handle = recorder.handle();
        ::metrics::with_local_recorder(&recorder, || {
            ::metrics::describe_counter!("requests_total", "Requests.");
            ::metrics::counter!("requests_total", "model" => "a\"b").increment(3);
            ::metrics::gauge!("queue_depth").set(2.5);
            ::metrics::histogram!("latency_seconds", "model" => "m").record(0.05);
            ::metrics::histogram!("latency_seconds", "model" => "m").record(7.0);
        });
        let (points, mut metrics) = requests(&handle.render()).remove(0);
        metrics.sort_by(|one, other| one.name.cmp(&other.name));
        let [latency, depth, requests] = &metrics[..] else { panic!("{metrics:?}") };
        assert_eq!((points, requests.description.as_str(), latency.unit.as_str()), (3, "Requests.", "s"));
        assert!(matches!(&requests.data, Some(Data::Sum(sum)) if sum.is_monotonic));
        assert!(matches!(&depth.data, Some(Data::Gauge(_))));
        let Some(Data::Histogram(histogram)) = &latency.data else { panic!("{latency:?}") };
        let point = &histogram.data_points[0];
        assert_eq!(
            (&point.bucket_counts[..], &point.explicit_bounds[..]),
            (&[0, 1, 1][..], &[0.01, 0.1][..])
        );
        assert_eq!((point.count, point.sum), (2, Some(7.05)));
    }
}
