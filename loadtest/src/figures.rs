//! Converts counts into the figures of a report.

use crate::keeping_up;
use crate::record::{SecondTally, Tally, Times};
use crate::report::{Figures, Latency, Second};

/// The reason of requests that were in flight when the run was stopped.
const UNANSWERED: &str = "unanswered_when_stopped";

/// Microseconds as milliseconds.
pub(crate) fn millis(micros: u64) -> f64 {
    micros as f64 / 1e3
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A histogram as text; empty if it has more values than the format can represent.
fn text(times: &Times) -> String {
    crate::histogram::encode(times).unwrap_or_default()
}

pub(crate) fn latency(times: &Option<Times>) -> Option<Latency> {
    let times = times.as_ref().filter(|times| !times.is_empty())?;
    let at = |quantile| millis(times.value_at_quantile(quantile));
    Some(Latency {
        count: times.len(),
        mean_ms: times.mean() / 1e3,
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p95_ms: at(0.95),
        p99_ms: at(0.99),
        p99_9_ms: at(0.999),
        max_ms: millis(times.max()),
        histogram: text(times),
    })
}

/// The figures of counts over `seconds`.
pub(crate) fn figures(tally: &Tally, over_s: f64) -> Figures {
    let ended = tally.answered + tally.refused.values().sum::<u64>() + tally.failed.values().sum::<u64>();
    let mut failed = tally.failed.clone();
    if let Some(left @ 1..) = tally.offered.checked_sub(ended) {
        failed.insert(UNANSWERED.to_owned(), left);
    }
    let rate = |count: u64| if over_s > 0.0 { count as f64 / over_s } else { 0.0 };
    Figures {
        offered: tally.offered,
        answered: tally.answered,
        good: tally.good,
        refused: tally.refused.clone(),
        failed,
        offered_rate: rate(tally.offered),
        goodput: rate(tally.good),
        attainment: if tally.offered == 0 { 1.0 } else { tally.good as f64 / tally.offered as f64 },
        latency: latency(&tally.latency),
        service: latency(&tally.service),
        refusal: latency(&tally.refusal),
    }
}

/// `allowed` is how late a request may be sent, in nanoseconds. `keep` adds the histogram.
pub(crate) fn second(t: u64, tally: &SecondTally, allowed: u64, keep: bool) -> Second {
    let quantile = |times: &Option<Times>, quantile| {
        times.as_ref().filter(|times| !times.is_empty()).map(|times| times.value_at_quantile(quantile))
    };
    Second {
        t,
        offered: tally.offered,
        answered: tally.answered,
        good: tally.good,
        refused: tally.refused,
        failed: tally.failed,
        p50_ms: quantile(&tally.latency, 0.5).map(millis),
        p90_ms: quantile(&tally.latency, 0.9).map(millis),
        p99_ms: quantile(&tally.latency, 0.99).map(millis),
        mean_ms: tally.latency.as_ref().filter(|times| !times.is_empty()).map(|times| times.mean() / 1e3),
        p99_of_slo: quantile(&tally.of_slo, 0.99).map(keeping_up::of_slo),
        send_error_p99_ms: quantile(&tally.send_error, 0.99).map(millis),
        kept_up: keeping_up::kept_up(tally, allowed),
        histogram: tally.latency.as_ref().filter(|_| keep).map(text),
    }
}
