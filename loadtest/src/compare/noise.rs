//! How much a figure of one run varies: its relative variance if requests were independent, and by how much each
//! second moved it. The method is described in [`super`].

use hdrhistogram::Histogram;
use statrs::distribution::{ContinuousCDF as _, Normal};

use super::load;
use super::metric::{Metric, refused};
use crate::histogram::decode;
use crate::report::{Figures, Report, Second};

/// How many standard deviations of a rank the slope of a histogram is taken over: as wide as the interval.
const WIDTH: f64 = 1.96;

/// The figures of a run, or of a model of it, with their histogram read.
pub(super) struct Sample<'a> {
    pub(super) figures: &'a Figures,
    histogram: Option<Histogram<u64>>,
}

impl<'a> Sample<'a> {
    pub(super) fn of(figures: &'a Figures) -> Self {
        let read = figures.latency.as_ref().and_then(|latency| decode(&latency.histogram).ok());
        Self { figures, histogram: read.filter(|histogram| !histogram.is_empty()) }
    }
}

/// Relative variance of a figure if its requests were independent; none if they are too few to tell. `arrivals` says
/// whether it was left to chance how many requests were due.
pub(super) fn independent(metric: Metric, sample: &Sample<'_>, arrivals: bool) -> Option<f64> {
    let figures = sample.figures;
    let (offered, good) = (figures.offered as f64, figures.good as f64);
    // Agresti and Caffo: a success and a failure more, so that "none of 1,000 failed" is not taken for certainty.
    let share = (good + 1.0) / (offered + 2.0);
    let in_time = (1.0 - share) / share / (offered + 2.0);
    match metric {
        Metric::Goodput => Some(in_time + if arrivals { 1.0 / offered.max(1.0) } else { 0.0 }),
        Metric::Attainment => Some(in_time),
        Metric::RefusedShare => {
            let refused = refused(figures) as f64;
            Some(1.0 / (refused + 0.5) - 1.0 / (offered + 0.5))
        }
        Metric::MeanMs => {
            let histogram = sample.histogram.as_ref()?;
            let relative = histogram.stdev() / histogram.mean().max(1.0);
            Some(relative * relative / histogram.len().max(1) as f64)
        }
        _ => {
            let (histogram, share) = (sample.histogram.as_ref()?, metric.percentile()?);
            let count = histogram.len() as f64;
            let deviation = slope(histogram, share)? * (share * (1.0 - share) / count).sqrt();
            // Times are known to three digits, and never better than to a microsecond.
            let at = histogram.value_at_quantile(share).max(1);
            let resolution = histogram.equivalent_range(at) as f64 / at as f64;
            Some(deviation * deviation + resolution * resolution / 12.0)
        }
    }
}

/// By how much the logarithm of the time at this share grows with the share; none if there are too few answers
/// beyond it.
fn slope(histogram: &Histogram<u64>, share: f64) -> Option<f64> {
    let count = histogram.len() as f64;
    let around = WIDTH * (share * (1.0 - share) / count).sqrt();
    let (below, above) = (share - around, share + around);
    if below * count < 1.0 || above * count > count {
        return None;
    }
    let at = |share: f64| (histogram.value_at_quantile(share).max(1) as f64).ln();
    Some((at(above) - at(below)) / (2.0 * around))
}

/// By how much each measured second moved a figure of all models together, times the number of seconds.
pub(super) struct Influence {
    /// In the order of the seconds; the mean is 0.
    pub(super) seconds: Vec<f64>,
    /// Converts it into the logarithm of the figure.
    pub(super) slope: f64,
}

/// The influence of the seconds; where there are two ways to see it, both: the noise is at least that of either. Empty
/// if it cannot be told.
pub(super) fn influences(metric: Metric, report: &Report, total: &Sample<'_>) -> Vec<Influence> {
    let seconds: Vec<&Second> = load::measured(report).collect();
    let by_rank = metric.percentile().and_then(|share| by_rank(share, total, &seconds));
    let direct = match metric {
        Metric::Goodput => relative(&seconds, |second| second.good),
        Metric::Attainment => by_offered(&seconds, |second| second.good),
        Metric::RefusedShare => {
            Some(by_offered(&seconds, |second| second.refused).unwrap_or_else(|| vec![0.0; seconds.len()]))
        }
        Metric::MeanMs => logarithms(&seconds, |second| second.mean_ms),
        Metric::P50Ms => logarithms(&seconds, |second| second.p50_ms),
        Metric::P90Ms => logarithms(&seconds, |second| second.p90_ms),
        _ => logarithms(&seconds, |second| second.p99_ms),
    };
    direct.map(|seconds| Influence { seconds, slope: 1.0 }).into_iter().chain(by_rank).collect()
}

/// From how many answers of each second are slower than the percentile of all.
fn by_rank(share: f64, total: &Sample<'_>, seconds: &[&Second]) -> Option<Influence> {
    let histogram = total.histogram.as_ref()?;
    let time = histogram.value_at_quantile(share) as f64 / 1e3;
    let slope = slope(histogram, share)?;
    let slower = seconds.iter().map(|second| Shape::of(second).map(|shape| shape.slower_than(time)));
    Some(Influence { seconds: deviations(seconds, &slower.collect::<Vec<_>>())?, slope })
}

/// Counts relative to their mean, less 1; none if they are all 0.
fn relative(seconds: &[&Second], count: fn(&Second) -> u64) -> Option<Vec<f64>> {
    let counts = seconds.iter().map(|second| count(second) as f64);
    let mean = counts.clone().sum::<f64>() / seconds.len().max(1) as f64;
    (mean > 0.0).then(|| counts.map(|count| count / mean - 1.0).collect())
}

/// The same of a share of the requests that were due.
fn by_offered(seconds: &[&Second], count: fn(&Second) -> u64) -> Option<Vec<f64>> {
    let (counts, offered) = (relative(seconds, count)?, relative(seconds, |second| second.offered)?);
    Some(counts.iter().zip(&offered).map(|(one, other)| one - other).collect())
}

/// How far the logarithm of each second's time is from its mean.
fn logarithms(seconds: &[&Second], time: fn(&Second) -> Option<f64>) -> Option<Vec<f64>> {
    let times: Vec<_> = seconds.iter().map(|second| time(second).map(f64::ln)).collect();
    deviations(seconds, &times)
}

/// How far each second's value is from the mean of them, both weighted by the seconds' answers; none without values.
fn deviations(seconds: &[&Second], values: &[Option<f64>]) -> Option<Vec<f64>> {
    let pairs =
        seconds.iter().zip(values).filter_map(|(second, value)| Some((second.answered as f64, (*value)?)));
    let (answers, sum) =
        pairs.fold((0.0, 0.0), |(all, sum), (answers, value)| (all + answers, sum + answers * value));
    let (mean, centre) = (answers / seconds.len().max(1) as f64, sum / answers);
    let deviation = |(second, value): (&&Second, &Option<f64>)| {
        value.map_or(0.0, |value| second.answered as f64 / mean * (value - centre))
    };
    (mean > 0.0 && centre.is_finite()).then(|| seconds.iter().zip(values).map(deviation).collect())
}

/// The distribution through a second's percentiles, log-normal between each two of them and beyond the outer ones.
struct Shape {
    /// Normal deviates and logarithms of times, ascending.
    places: Vec<(f64, f64)>,
}

impl Shape {
    fn of(second: &Second) -> Option<Self> {
        let count = second.answered as f64;
        let known = [(0.5, second.p50_ms), (0.9, second.p90_ms), (0.99, second.p99_ms)];
        let mut places: Vec<(f64, f64)> = Vec::new();
        for (share, time) in known.into_iter().filter_map(|(share, time)| Some((share, time?.ln()))) {
            // Percentiles of few answers are order statistics, and stand for these shares on average.
            let place = Normal::standard().inverse_cdf((share * count).ceil() / (count + 1.0));
            let above = places.last().is_none_or(|last| place > last.0 && time > last.1);
            if above && place.is_finite() && time.is_finite() {
                places.push((place, time));
            }
        }
        (!places.is_empty()).then_some(Self { places })
    }

    fn slower_than(&self, time: f64) -> f64 {
        let time = time.ln();
        let between = self.places.windows(2);
        let line = between.clone().find(|pair| pair.last().is_some_and(|(_, to)| time <= *to));
        match line.or_else(|| between.last()) {
            Some([(low, from), (high, to)]) => {
                let place = low + (time - from) / (to - from) * (high - low);
                Normal::standard().sf(place)
            }
            // A single time: everything took as long.
            _ => self.places.first().map_or(0.0, |(_, only)| f64::from(u8::from(time < *only))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_goes_through_its_percentiles() {
        let second = Second {
            answered: 100_000,
            p50_ms: Some(10.0),
            p90_ms: Some(15.0),
            p99_ms: Some(30.0),
            ..Second::default()
        };
        let shape = Shape::of(&second).unwrap();
        for (time, slower) in [(10.0, 0.5), (15.0, 0.1), (30.0, 0.01)] {
            assert!((shape.slower_than(time) - slower).abs() < 1e-4, "{time}: {}", shape.slower_than(time));
        }
        let falling: Vec<_> = (1..100).map(|time| shape.slower_than(f64::from(time))).collect();
        assert!(falling.windows(2).all(|pair| pair[0] >= pair[1]) && falling[98] < 1e-4 && falling[0] > 0.99);
        let steady = Second { p90_ms: Some(10.0), p99_ms: Some(10.0), ..second };
        let steady = Shape::of(&steady).unwrap();
        assert_eq!((steady.slower_than(9.9), steady.slower_than(10.0)), (1.0, 0.0));
        assert!(Shape::of(&Second::default()).is_none());
    }
}
