//! Metrics of `/metrics`.

use node::metrics::names::{LABELS, Metric, MetricType, PROCESS, ROWS, SECONDS, TESSERA, TRITON};

use super::{code, table};

const INTRODUCTION: &str = "\
# Metrics

`GET /metrics` on the address `server.metrics` (default 127.0.0.1:8002) returns all metrics in the text format of Prometheus.
";

pub fn page() -> String {
    let labels = LABELS.iter().map(|(name, meaning)| [code(name), (*meaning).to_owned()]);
    let bounds = |bounds: &[f64]| bounds.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "{INTRODUCTION}\n{}\n{}\n## Labels\n\n{}\n## Histograms\n\nA histogram has the series `_bucket`, `_sum` and `_count`, from its first value on. Upper \
         bounds of its buckets:\n\n- seconds: {}\n- rows: {}\n\n## Names of Triton\n\nWith `metrics.triton_names = true`, these \
         are recorded as well, for dashboards made for Triton.\n\n{}",
        rows(TESSERA),
        rows(PROCESS),
        table(["label", "meaning"], labels),
        bounds(&SECONDS),
        bounds(&ROWS),
        rows(TRITON),
    )
}

fn rows(metrics: &[Metric]) -> String {
    let row = |metric: &Metric| {
        let metric_type = match metric.metric_type {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Time => "gauge, seconds since 1970",
            MetricType::Seconds => "histogram, seconds",
            MetricType::Rows => "histogram, rows",
        };
        let labels = metric.labels.iter().map(|label| code(label)).collect::<Vec<_>>().join(", ");
        [code(metric.name), metric_type.to_owned(), labels, metric.help.to_owned()]
    };
    table(["metric", "type", "labels", "meaning"], metrics.iter().map(row))
}
