//! Plots over time.

use charts::{Plot, Reference, Series, figure};

use crate::report::{Report, Second};
use crate::summary;

/// Upper bound on the points of a line. In a longer run, several seconds share a point.
const POINTS_MAX: usize = 1_200;
const SECONDS: &str = "seconds from the start of the run";

/// Seconds that share a point.
fn step(report: &Report) -> usize {
    report.seconds.len().div_ceil(POINTS_MAX).max(1)
}

fn line(
    report: &Report,
    name: &str,
    colour: Option<usize>,
    value: impl Fn(&[Second]) -> Option<f64>,
) -> Series {
    let points = report.seconds.chunks(step(report)).filter_map(|seconds| {
        let t = seconds.first()?.t as f64;
        Some((t, value(seconds).unwrap_or(f64::NAN)))
    });
    Series::new(name, colour, points.collect())
}

/// The worst value of some seconds. `None` without values.
fn worst(value: impl Fn(&Second) -> Option<f64>) -> impl Fn(&[Second]) -> Option<f64> {
    move |seconds| seconds.iter().filter_map(&value).reduce(f64::max)
}

/// Mean requests per second of some seconds.
fn rate(count: impl Fn(&Second) -> u64) -> impl Fn(&[Second]) -> Option<f64> {
    move |seconds| {
        let sum: u64 = seconds.iter().map(&count).sum();
        (!seconds.is_empty()).then(|| sum as f64 / seconds.len() as f64)
    }
}

/// Whether no line has two points.
fn empty(series: &[Series]) -> bool {
    series.iter().all(|series| series.points.iter().filter(|point| point.1.is_finite()).count() < 2)
}

/// Moments that every plot marks.
fn moments(report: &Report) -> Vec<Reference> {
    let mut moments = Vec::new();
    if report.warmup_s > 0.0 {
        moments.push(Reference::new("counted from here", report.warmup_s));
    }
    if let Some(late) = report.seconds.iter().find(|second| !second.kept_up) {
        moments.push(Reference::new("client too slow", late.t as f64));
    }
    moments
}

fn caption(report: &Report, words: &str) -> String {
    match step(report) {
        1 => words.to_owned(),
        step => format!("{words} A point is the worst of {step} seconds."),
    }
}

fn plot(report: &Report, title: &str, vertical: &str, series: Vec<Series>) -> Plot {
    Plot {
        title: title.to_owned(),
        horizontal: SECONDS.to_owned(),
        vertical: vertical.to_owned(),
        series,
        upright: moments(report),
        ..Plot::default()
    }
}

/// Percentiles of each second, in milliseconds where one SLO holds for all, else in SLOs.
pub(super) fn latency(report: &Report) -> Option<String> {
    let p99 = |value: fn(&Second) -> Option<f64>| line(report, "p99", Some(1), worst(value));
    let (title, unit, slo, series) = match summary::shared_slo(report) {
        Some(slo) => {
            let p50 = line(report, "p50", Some(0), worst(|second| second.p50_ms));
            let title = "Latency of the answers to each second's requests";
            (title, "ms", slo, vec![p99(|second| second.p99_ms), p50])
        }
        None => {
            let title = "99th-percentile latency of each second's requests, in multiples of the SLO";
            (title, "SLOs of the request's model", 1.0, vec![p99(|second| second.p99_of_slo)])
        }
    };
    if empty(&series) {
        return None;
    }
    let (level, beyond) = super::slo_line(slo, unit, &series);
    let plot = Plot { level, ..plot(report, title, unit, series) };
    let words = format!(
        "Requests count in the second in which they were due; right answers only. A gap is a second without \
         any.{beyond}"
    );
    Some(figure("Latency over time", &plot.element(), &caption(report, &words)))
}

/// Offered load and goodput.
pub(super) fn goodput(report: &Report) -> Option<String> {
    let mut series = vec![
        line(report, "offered", None, rate(|second| second.offered)),
        line(report, "goodput", Some(2), rate(|second| second.good)),
    ];
    if empty(&series) {
        return None;
    }
    if report.seconds.iter().any(|second| second.refused > 0) {
        series.push(line(report, "refused", Some(3), rate(|second| second.refused)));
    }
    if report.seconds.iter().any(|second| second.failed > 0) {
        series.push(line(report, "failed", Some(1), rate(|second| second.failed)));
    }
    Some(figure(
        "Requests over time",
        &plot(report, "Requests a second", "requests a second", series).element(),
        "Requests count in the second in which they were due. Goodput that stays below what is offered after the traffic \
         has become normal again is a collapse that feeds itself.",
    ))
}

/// How late this client sent requests.
pub(super) fn send_error(report: &Report) -> Option<String> {
    let series = vec![line(report, "p99", Some(5), worst(|second| second.send_error_p99_ms))];
    if empty(&series) {
        return None;
    }
    let title = "99 % of requests were sent at most so long after they were due";
    let words = "Small against the latencies above, or the client has measured itself.";
    let plot = plot(report, title, "ms", series);
    Some(figure("This client", &plot.element(), &caption(report, words)))
}
