//! Computes intervals and verdicts from the noise of two runs.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::load;
use super::metric::{Metric, refused};
use super::noise::{Influence, Sample, independent, influences};
use super::{Row, Verdict};
use crate::report::{Figures, Report};

/// Measured seconds of a run that is long enough.
const SECONDS_MIN: usize = 10;
/// Requests, or answers, of a figure that is certain enough.
const REQUESTS_MIN: u64 = 1_000;
/// Batches of a run: fewer have too few degrees of freedom, more are too short to be independent.
const BATCHES: (usize, usize) = (10, 30);
/// Seconds of a batch where the run is long enough.
const BATCH_SECONDS: usize = 5;
/// Correlation of adjacent batches above which no interval can be given.
const LIKENESS_MAX: f64 = 0.8;
/// Good answers of one run that are significant if the other run has none.
const CLEAR: u64 = 10;

/// A variance and how well it is known.
#[derive(Clone, Copy, Debug)]
struct Spread {
    variance: f64,
    freedom: f64,
}

/// Measures the differences of two runs.
pub(super) struct Ruler<'a> {
    total: (Sample<'a>, Sample<'a>),
    paired: bool,
    same_requests: bool,
    /// Of all models together; empty if a run is too short.
    noises: Vec<Noise>,
}

/// The noise of one figure of all models together.
struct Noise {
    metric: Metric,
    /// Variance if requests were independent.
    least: Option<f64>,
    /// From the runs' seconds.
    spread: Option<Spread>,
}

impl<'a> Ruler<'a> {
    pub(super) fn of(a: &'a Report, b: &'a Report) -> Self {
        let total = (Sample::of(&a.total), Sample::of(&b.total));
        let (paired, same_requests) = (load::same_course(a, b), load::same_requests(a, b));
        let mut ruler = Self { total, paired, same_requests, noises: Vec::new() };
        if [a, b].iter().all(|report| load::measured(report).count() >= SECONDS_MIN) {
            let noises = Metric::ALL.map(|metric| Noise {
                metric,
                least: ruler.at_least(metric, (&ruler.total.0, &ruler.total.1)),
                spread: ruler.between_seconds(metric, a, b),
            });
            ruler.noises.extend(noises);
        }
        ruler
    }

    pub(super) fn paired(&self) -> bool {
        self.paired
    }

    /// All figures of all models together.
    pub(super) fn total(&self) -> Vec<Row> {
        Metric::ALL.map(|metric| self.row(None, metric, (&self.total.0, &self.total.1))).to_vec()
    }

    /// All figures of a model.
    pub(super) fn model(&self, name: &str, figures: (&Figures, &Figures)) -> Vec<Row> {
        let (a, b) = (Sample::of(figures.0), Sample::of(figures.1));
        Metric::ALL.map(|metric| self.row(Some(name.to_owned()), metric, (&a, &b))).to_vec()
    }

    fn between_seconds(&self, metric: Metric, a: &Report, b: &Report) -> Option<Spread> {
        let (a, b) = (influences(metric, a, &self.total.0), influences(metric, b, &self.total.1));
        let ways = a.iter().zip(&b).map(|(a, b)| if self.paired { in_pairs(a, b) } else { apart(a, b) });
        ways.max_by(|one, other| one.variance.total_cmp(&other.variance))
    }

    /// The spread of the difference for these figures: what independent requests would have, and in addition what
    /// all models together have beyond that.
    fn spread(&self, metric: Metric, samples: (&Sample<'_>, &Sample<'_>)) -> Option<Spread> {
        let noise = self.noises.iter().find(|noise| noise.metric == metric)?;
        let (least, all, spread) = (self.at_least(metric, samples)?, noise.least?, noise.spread?);
        let beyond = (spread.variance - all).max(0.0);
        let times = if all > 0.0 { (least / all).max(1.0) } else { 1.0 };
        Some(Spread { variance: least + beyond * times, ..spread })
    }

    /// The variance of the difference of the logarithms if requests were independent.
    fn at_least(&self, metric: Metric, samples: (&Sample<'_>, &Sample<'_>)) -> Option<f64> {
        let (a, b) = samples;
        let arrivals = !self.same_requests || a.figures.offered != b.figures.offered;
        Some(independent(metric, a, arrivals)? + independent(metric, b, arrivals)?)
    }

    fn row(&self, model: Option<String>, metric: Metric, samples: (&Sample<'_>, &Sample<'_>)) -> Row {
        let figures = (samples.0.figures, samples.1.figures);
        let (a, b) = (metric.value(figures.0), metric.value(figures.1));
        let ratio = a.zip(b).filter(|(a, _)| *a > 0.0).map(|(a, b)| b / a);
        let mut row = Row { model, metric, a, b, ratio, interval: None, verdict: Verdict::TooShort };
        let enough = |figures: &Figures| {
            let latency = figures.latency.as_ref().map_or(0, |latency| latency.count);
            let count = if metric.is_latency() { latency } else { figures.offered };
            count >= REQUESTS_MIN
        };
        if self.noises.is_empty() || !enough(figures.0) || !enough(figures.1) {
            return row;
        }
        let Some(logarithm) = logarithm(metric, figures) else {
            row.verdict = without_ratio(metric, figures);
            return row;
        };
        let Some(spread) = self.spread(metric, samples) else {
            return row;
        };
        let half = student(spread.freedom) * spread.variance.sqrt();
        row.interval = Some([(logarithm - half).exp(), (logarithm + half).exp()]);
        row.verdict = match (logarithm.abs() > half, (logarithm > 0.0) == metric.more_is_better()) {
            (false, _) => Verdict::WithinNoise,
            (true, true) => Verdict::Better,
            (true, false) => Verdict::Worse,
        };
        row
    }
}

/// The logarithm of the ratio; none if one side is 0.
fn logarithm(metric: Metric, figures: (&Figures, &Figures)) -> Option<f64> {
    if metric == Metric::RefusedShare {
        // Half a refusal more on each side, after Walter: none at all has a logarithm then.
        let share = |figures: &Figures| (refused(figures) as f64 + 0.5) / (figures.offered as f64 + 0.5);
        let any = refused(figures.0) + refused(figures.1) > 0;
        return any.then(|| (share(figures.1) / share(figures.0)).ln());
    }
    let (a, b) = (metric.value(figures.0)?, metric.value(figures.1)?);
    (a > 0.0 && b > 0.0).then(|| (b / a).ln())
}

/// The verdict if one run, or both, have a value of 0.
fn without_ratio(metric: Metric, figures: (&Figures, &Figures)) -> Verdict {
    if metric.is_latency() {
        return Verdict::TooShort;
    }
    match (figures.0.good, figures.1.good) {
        (0, CLEAR..) if metric.more_is_better() => Verdict::Better,
        (CLEAR.., 0) if metric.more_is_better() => Verdict::Worse,
        _ => Verdict::WithinNoise,
    }
}

/// The same seconds of two runs. One slope for both: what the load does in both must cancel out.
fn in_pairs(a: &Influence, b: &Influence) -> Spread {
    let slope = f64::midpoint(a.slope, b.slope);
    let differences: Vec<f64> = b.seconds.iter().zip(&a.seconds).map(|(b, a)| slope * (b - a)).collect();
    batch_means(&differences)
}

/// The seconds of two independent runs; degrees of freedom after Welch.
fn apart(a: &Influence, b: &Influence) -> Spread {
    let (one, other) = (batch_means(&a.seconds), batch_means(&b.seconds));
    let (one_variance, other_variance) =
        (one.variance * a.slope * a.slope, other.variance * b.slope * b.slope);
    let variance = one_variance + other_variance;
    let welch = one_variance.powi(2) / one.freedom + other_variance.powi(2) / other.freedom;
    let freedom = if welch > 0.0 { variance * variance / welch } else { one.freedom + other.freedom };
    Spread { variance, freedom }
}

/// The variance of the mean of a sequence with dependent values, from the means of its batches.
fn batch_means(values: &[f64]) -> Spread {
    let wanted = (values.len() / BATCH_SECONDS).clamp(BATCHES.0, BATCHES.1);
    let length = (values.len() / wanted).max(1);
    let means: Vec<f64> =
        values.rchunks_exact(length).map(|batch| batch.iter().sum::<f64>() / length as f64).collect();
    let count = means.len() as f64;
    let centre = means.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = means.iter().map(|mean| (mean - centre) * (mean - centre)).sum();
    let freedom = (count - 1.0).max(1.0);
    let products: f64 =
        means.iter().zip(means.iter().skip(1)).map(|(one, next)| (one - centre) * (next - centre)).sum();
    // Correlated batches count as fewer independent ones. The correlation of few values is estimated too low; the added
    // term corrects that (Marriott and Pope).
    let likeness = if squares > 0.0 { products / squares } else { 0.0 };
    let likeness = (likeness + (1.0 + 4.0 * likeness) / count.max(1.0)).clamp(0.0, LIKENESS_MAX);
    let worth = (1.0 - likeness) / (1.0 + likeness);
    Spread { variance: squares / freedom / count.max(1.0) / worth, freedom }
}

/// The 97.5 % quantile of Student's t.
fn student(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_is_students() {
        for (freedom, quantile) in [(1.0, 12.706), (9.0, 2.262), (30.0, 2.042), (1e6, 1.960)] {
            assert!((student(freedom) - quantile).abs() < 1e-3, "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn batches_are_at_least_ten_and_of_five_seconds_where_they_can() {
        for (seconds, batches) in [(10, 10), (19, 19), (29, 14), (49, 12), (50, 10), (150, 30), (600, 30)] {
            let values: Vec<f64> = (0..seconds).map(f64::from).collect();
            assert_eq!(batch_means(&values).freedom, f64::from(batches - 1), "{seconds} seconds");
        }
        let alternating: Vec<f64> = (0..100).map(|place| f64::from(place % 5) - 2.0).collect();
        assert!(batch_means(&alternating).variance < 1e-12, "variation within a batch cancels out");
        let constant = batch_means(&[3.0; 40]);
        assert_eq!(constant.variance, 0.0);
    }
}
