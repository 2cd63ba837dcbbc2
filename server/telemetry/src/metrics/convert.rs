//! Metrics of OTLP from families of Prometheus.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum, Summary,
    SummaryDataPoint,
};

use super::exposition::{Family, FamilyType, Labels, Sample};
use crate::attribute::text;

/// When the counts began, and when they were read, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) started: u64,
    pub(super) read: u64,
}

/// The metrics of a family, each with at most `points_max` data points, and the number of its data points.
pub(super) fn metrics(family: &Family<'_>, times: Times, points_max: usize) -> Vec<(usize, Metric)> {
    match family.family_type {
        FamilyType::Counter => numbers(family, times, points_max, |data_points| {
            Data::Sum(Sum {
                data_points,
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
                is_monotonic: true,
            })
        }),
        FamilyType::Gauge | FamilyType::Unknown => {
            let times = Times { started: 0, ..times };
            numbers(family, times, points_max, |data_points| Data::Gauge(Gauge { data_points }))
        }
        FamilyType::Histogram => {
            let points = distributions(family, "le").map(|found| found.histogram(times)).collect();
            divided(family, points, points_max, |data_points| {
                let aggregation_temporality = AggregationTemporality::Cumulative.into();
                Data::Histogram(Histogram { data_points, aggregation_temporality })
            })
        }
        FamilyType::Summary => {
            let points = distributions(family, "quantile").map(|found| found.summary(times)).collect();
            divided(family, points, points_max, |data_points| Data::Summary(Summary { data_points }))
        }
    }
}

fn numbers(
    family: &Family<'_>,
    times: Times,
    points_max: usize,
    data: impl Fn(Vec<NumberDataPoint>) -> Data,
) -> Vec<(usize, Metric)> {
    let points = family.samples.iter().map(|sample| NumberDataPoint {
        attributes: attributes(&sample.labels),
        start_time_unix_nano: times.started,
        time_unix_nano: times.read,
        value: Some(Value::AsDouble(sample.value)),
        ..NumberDataPoint::default()
    });
    divided(family, points.collect(), points_max, data)
}

fn divided<P>(
    family: &Family<'_>,
    mut points: Vec<P>,
    points_max: usize,
    data: impl Fn(Vec<P>) -> Data,
) -> Vec<(usize, Metric)> {
    let mut metrics = Vec::new();
    while !points.is_empty() {
        let later = points.split_off(points.len().min(points_max.max(1)));
        let metric = Metric {
            name: family.name.to_owned(),
            description: family.help.clone().into_owned(),
            unit: unit(family.name).to_owned(),
            ..Metric::default()
        };
        metrics.push((points.len(), Metric { data: Some(data(points)), ..metric }));
        points = later;
    }
    metrics
}

/// The unit by the suffix of the name, in the notation of OpenTelemetry.
fn unit(name: &str) -> &'static str {
    match name.trim_end_matches("_total").rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

fn attributes(labels: &Labels<'_>) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| text(name, value)).collect()
}

/// One histogram or summary: the samples whose labels are the same but for the bound.
struct Distribution<'a> {
    labels: Labels<'a>,
    /// Bound or quantile, and value.
    points: Vec<(f64, f64)>,
    sum: f64,
    count: f64,
}

fn distributions<'a>(family: &Family<'a>, bound: &str) -> impl Iterator<Item = Distribution<'a>> {
    let mut found: Vec<Distribution<'a>> = Vec::new();
    let mut places = HashMap::new();
    for sample in &family.samples {
        let (bounds, labels): (Labels<'a>, Labels<'a>) =
            sample.labels.iter().cloned().partition(|(name, _)| *name == bound);
        let place = *places.entry(labels.clone()).or_insert(found.len());
        if place == found.len() {
            found.push(Distribution { labels, points: Vec::new(), sum: 0.0, count: 0.0 });
        }
        if let Some(distribution) = found.get_mut(place) {
            distribution.add(family.name, sample, bounds.first().and_then(|(_, value)| value.parse().ok()));
        }
    }
    found.into_iter()
}

impl Distribution<'_> {
    fn add(&mut self, family: &str, sample: &Sample<'_>, bound: Option<f64>) {
        match (sample.name.strip_prefix(family), bound) {
            (Some("_sum"), _) => self.sum = sample.value,
            (Some("_count"), _) => self.count = sample.value,
            (Some("_bucket" | ""), Some(bound)) => self.points.push((bound, sample.value)),
            _ => {}
        }
    }

    fn histogram(mut self, times: Times) -> HistogramDataPoint {
        self.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut below = 0;
        let mut bucket_counts = Vec::with_capacity(self.points.len() + 1);
        let mut explicit_bounds = Vec::with_capacity(self.points.len());
        for (bound, up_to) in self.points.iter().filter(|(bound, _)| bound.is_finite()) {
            bucket_counts.push(whole(*up_to).saturating_sub(below));
            explicit_bounds.push(*bound);
            below = below.max(whole(*up_to));
        }
        bucket_counts.push(whole(self.count).saturating_sub(below));
        HistogramDataPoint {
            attributes: attributes(&self.labels),
            start_time_unix_nano: times.started,
            time_unix_nano: times.read,
            // OTLP requires that the count is the sum of all buckets.
            count: bucket_counts.iter().sum(),
            sum: Some(self.sum),
            bucket_counts,
            explicit_bounds,
            ..HistogramDataPoint::default()
        }
    }

    fn summary(self, times: Times) -> SummaryDataPoint {
        let quantiles = self
            .points
            .iter()
            .map(|(quantile, value)| ValueAtQuantile { quantile: *quantile, value: *value });
        SummaryDataPoint {
            attributes: attributes(&self.labels),
            start_time_unix_nano: times.started,
            time_unix_nano: times.read,
            count: whole(self.count),
            sum: self.sum,
            quantile_values: quantiles.collect(),
            ..SummaryDataPoint::default()
        }
    }
}

/// A count, which the text format writes as a floating-point number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(count: f64) -> u64 {
    count as u64
}

#[cfg(test)]
mod tests {
    use super::super::exposition::parse;
    use super::*;

    const TIMES: Times = Times { started: 1, read: 2 };

    fn only(text: &str) -> Metric {
        let [family] = &parse(text)[..] else { panic!("{text}") };
        let [(_, metric)] = &metrics(family, TIMES, 100)[..] else { panic!("{text}") };
        metric.clone()
    }

    #[test]
    fn a_counter_is_a_cumulative_monotonic_sum() {
        let metric = only(
            "# HELP busy_seconds_total Time.\n# TYPE busy_seconds_total counter\nbusy_seconds_total{lane=\"1\"} 2.5",
        );
        assert_eq!((metric.name.as_str(), metric.description.as_str()), ("busy_seconds_total", "Time."));
        assert_eq!(metric.unit, "s");
        let Some(Data::Sum(sum)) = metric.data else { panic!() };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
        assert_eq!(point.value, Some(Value::AsDouble(2.5)));
        assert_eq!(point.attributes, [text("lane", "1")]);
    }

    #[test]
    fn a_gauge_has_no_start() {
        let Some(Data::Gauge(gauge)) = only("# TYPE depth gauge\ndepth -3").data else { panic!() };
        assert_eq!(gauge.data_points[0].start_time_unix_nano, 0);
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(-3.0)));
    }

    #[test]
    fn a_histogram_has_counts_per_bucket() {
        let metric = only(
            "# TYPE h histogram\nh_bucket{m=\"a\",le=\"0.1\"} 3\nh_bucket{m=\"a\",le=\"1\"} 5\nh_bucket{m=\"a\",le=\"+Inf\"} 6\n\
             h_sum{m=\"a\"} 4.5\nh_count{m=\"a\"} 6\nh_bucket{m=\"b\",le=\"0.1\"} 1\nh_bucket{m=\"b\",le=\"+Inf\"} 1\nh_sum{m=\"b\"} 0.05\nh_count{m=\"b\"} 1",
        );
        let Some(Data::Histogram(histogram)) = metric.data else { panic!() };
        let [a, b] = &histogram.data_points[..] else { panic!("{histogram:?}") };
        assert_eq!((&a.explicit_bounds[..], &a.bucket_counts[..]), (&[0.1, 1.0][..], &[3, 2, 1][..]));
        assert_eq!((a.count, a.sum, &a.attributes[..]), (6, Some(4.5), &[text("m", "a")][..]));
        assert_eq!((b.count, &b.bucket_counts[..]), (1, &[1, 0][..]));
    }

    #[test]
    fn a_summary_has_quantiles() {
        let Some(Data::Summary(summary)) =
            only("# TYPE s summary\ns{quantile=\"0.5\"} 2\ns_sum 8\ns_count 4").data
        else {
            panic!()
        };
        let point = &summary.data_points[0];
        assert_eq!((point.count, point.sum, point.quantile_values[0].quantile), (4, 8.0, 0.5));
    }

    #[test]
    fn many_data_points_are_divided() {
        let lines: String = (0..25).map(|lane| format!("depth{{lane=\"{lane}\"}} 1\n")).collect();
        let text = format!("# TYPE depth gauge\n{lines}");
        let sizes: Vec<usize> =
            metrics(&parse(&text)[0], TIMES, 10).into_iter().map(|(points, _)| points).collect();
        assert_eq!(sizes, [10, 10, 5]);
    }
}
