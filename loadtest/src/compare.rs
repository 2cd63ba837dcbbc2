//! Two reports side by side, and which of their differences are more than noise.
//!
//! **What is estimated.** For each figure, the ratio b/a and its 95 % confidence interval, from the logarithm of the
//! ratio (delta method). A difference exceeds the noise if the interval does not contain 1.
//!
//! **Where the noise comes from.** Requests of one run are not independent: a slow second is slow for all of them. So
//! the variance of each figure is taken from the run's seconds by *batch means*: the seconds are grouped into 10 to 30
//! batches of equal length, of at least 5 seconds if the run is long enough. The batches, not the requests, are the
//! sample (B. Schmeiser, "Batch size effects in the analysis of simulation output", Operations Research 30(3),
//! 1982). Adjacent batches that are still correlated count as fewer (M. Bartlett,
//! "Some aspects of the time-correlation problem", Journal of the Royal Statistical Society 98(3), 1935; corrected for
//! few batches: F. Marriott and J. Pope, "Bias in the estimation of autocorrelations", Biometrika 41(3), 1954). If the
//! load followed the same course in both runs, the batches are compared in pairs, so that variation of the load itself
//! is not noise (common random numbers: A. Law, "Simulation Modeling and Analysis", ch. 11).
//!
//! * *Goodput, attainment, refusals* are counts a second.
//! * The uncertainty of a *percentile* is that of its rank: how much the share of slower answers varies from batch to
//!   batch, converted to time by the slope of the histogram at that rank (P. Heidelberger and P. Lewis, "Quantile estimation in
//!   dependent sequences", Operations Research 32(1), 1984). A report keeps three percentiles of each second; the
//!   share is that of the distribution through them, log-normal in between. The variation of the seconds' own
//!   percentiles is a second estimate. The larger estimate counts.
//! * For the *mean*, the means of the seconds are the values.
//!
//! **Lower bound.** The variance is at least that of independent requests: for percentiles the binomial one of order statistics (H.
//! David and H. Nagaraja, "Order Statistics", 7.1), for attainment that of A. Agresti and B. Caffo ("Simple and
//! effective confidence intervals for proportions", The American Statistician 54(4), 2000), for refusals, which may be
//! few, that of S. Walter ("The distribution of Levin's measure of attributable risk", Biometrika 62(2), 1975).
//!
//! **Models** have no seconds of their own in a report. Their variance is that of independent requests plus the excess of
//! all models together over independent requests. The excess is scaled by how much larger the model's own independent
//! variance is, at least by 1: by 1 as for a server that is slow for all models, by more as for models that are slow
//! independently of each other (the design effect: L. Kish, "Survey Sampling", 8.2).
//!
//! With synthetic servers, two runs of the same server are reported as different in at most 6 % of the cases if requests
//! are independent, and in up to 9 % if half of a second's slowness persists in the next (60 s; 12 % in 12 s).
//!
//! Runs of less than 10 measured seconds and figures of less than 1,000 requests are too short. One figure in twenty
//! seems different by chance alone. Two runs do not show what varies from one start of a server to the next: for that,
//! compare several.

mod difference;
mod load;
mod metric;
mod noise;
mod text;

use serde::Serialize;

use crate::report::Report;
use crate::summary;
use difference::Ruler;
pub use metric::Metric;

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The first run, the denominator of ratios.
    pub a: Side,
    /// The second run.
    pub b: Side,
    /// How the loads differed, which may explain differences. Empty if they were the same.
    pub load_differs: Vec<String>,
    /// Whether the load followed the same course in both runs, so that their seconds are compared in pairs.
    pub paired: bool,
    /// Warnings about the reliability of the figures.
    pub warnings: Vec<String>,
    /// The figures: all models together, then each model that both runs have.
    pub rows: Vec<Row>,
}

/// One of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The workload's name.
    pub workload: String,
    /// What was measured, in words.
    pub server: String,
    /// When, and how it was driven, in words.
    pub drive: String,
}

/// One figure of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The model; none for all together.
    pub model: Option<String>,
    /// Which figure.
    pub metric: Metric,
    /// Its value in the first run, in the unit of the metric; none if it has none.
    pub a: Option<f64>,
    /// The same of the second run.
    pub b: Option<f64>,
    /// The second value divided by the first; none if one is missing or the first is 0.
    pub ratio: Option<f64>,
    /// 95 % confidence interval of the ratio; none if it cannot be estimated.
    pub interval: Option<[f64; 2]>,
    /// What that means.
    pub verdict: Verdict,
}

/// What a ratio means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval contains 1: the difference may be noise.
    WithinNoise,
    /// The second run is better by more than the noise.
    Better,
    /// The second run is worse by more than the noise.
    Worse,
    /// Too few seconds, or too few requests.
    TooShort,
    /// There is one value per run, so its variation is unknown.
    Unknown,
}

/// The second run against the first.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let load_differs = load::differences(a, b);
    let ruler = Ruler::of(a, b);
    let mut rows = ruler.total();
    rows.push(processor_time(a, b));
    for (one, other) in load::pairs(a, b) {
        rows.extend(ruler.model(&one.name, (&one.figures, &other.figures)));
    }
    let warnings = [("a", a), ("b", b)].into_iter().flat_map(|(name, report)| {
        summary::warnings(report).into_iter().map(move |warning| format!("{name}: {}", warning.text))
    });
    Comparison {
        a: side(a),
        b: side(b),
        load_differs,
        paired: ruler.paired(),
        warnings: warnings.collect(),
        rows,
    }
}

fn side(report: &Report) -> Side {
    Side { workload: report.workload.clone(), server: summary::server(report), drive: summary::drive(report) }
}

fn processor_time(a: &Report, b: &Report) -> Row {
    let (one, other) = (a.client.cpu_us, b.client.cpu_us);
    Row {
        model: None,
        metric: Metric::ClientCpu,
        a: Some(one),
        b: Some(other),
        ratio: (one > 0.0).then(|| other / one),
        interval: None,
        verdict: Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests;
