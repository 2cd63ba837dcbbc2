//! Two reports side by side, and which of their differences are more than noise.
//!
//! **What is estimated.** Of every figure the ratio b/a and a 95 % confidence interval of it, from the logarithm of
//! the ratio (delta method). A difference exceeds the noise where the interval leaves out 1.
//!
//! **Where the noise comes from.** Requests of one run are not independent: a slow second is slow for all of them. So
//! the variance of each figure is taken from the run's seconds by *batch means*: the seconds are joined to 10 to 30
//! batches of equal length, of 5 seconds or more where the run is long enough, and the batches, not the requests, are
//! the sample (B. Schmeiser, "Batch size effects in the analysis of simulation output", Operations Research 30(3),
//! 1982). Adjacent batches that are still correlated count as fewer (M. Bartlett,
//! "Some aspects of the time-correlation problem", Journal of the Royal Statistical Society 98(3), 1935; corrected for
//! few batches: F. Marriott and J. Pope, "Bias in the estimation of autocorrelations", Biometrika 41(3), 1954). If the
//! load had the same course in both runs, the batches are compared in pairs, so that variation of the load itself
//! is not noise (common random numbers: A. Law, "Simulation Modeling and Analysis", ch. 11);
//!
//! * *Goodput, attainment, refusals* are counts a second.
//! * A *percentile* is uncertain by its rank: by how much the share of answers that are slower varies from batch to
//!   batch, turned into time by the slope of the histogram there (P. Heidelberger and P. Lewis, "Quantile estimation in
//!   dependent sequences", Operations Research 32(1), 1984). A report keeps three percentiles of each second; the
//!   share is that of the distribution through them, log-normal in between. How much the seconds' own
//!   percentiles vary is a second estimate, and the larger one counts.
//! * The *mean* is that of each second.
//!
//! **At least** the variance is that of independent requests: for percentiles the binomial one of order statistics (H.
//! David and H. Nagaraja, "Order Statistics", 7.1), for attainment that of A. Agresti and B. Caffo ("Simple and
//! effective confidence intervals for proportions", The American Statistician 54(4), 2000), for refusals, which may be
//! few, that of S. Walter ("The distribution of Levin's measure of attributable risk", Biometrika 62(2), 1975).
//!
//! **Models** have no seconds of their own in a report. Theirs is the variance of independent requests and, in
//! addition, what the variance of all models together has beyond that: once, as for a server that is slow for all of
//! them, or as many times as the model's own is larger, as for models that are slow each on its own (the design effect:
//! L. Kish, "Survey Sampling", 8.2), whichever is more.
//!
//! Against made-up servers two runs of the same kind are called different in at most 6 % of the cases where requests are
//! independent, and in up to 9 % where half of a second's slowness stays for the next (60 s; 12 % in 12 s).
//!
//! Runs of less than 10 measured seconds or figures of less than 1,000 requests are too short to tell. One figure in
//! twenty seems different by chance alone. Two runs say nothing about what differs from one start of a server to the
//! next: for that, compare several.

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
    /// The first run, that ratios are of.
    pub a: Side,
    /// The second run.
    pub b: Side,
    /// In what the loads were not the same; differences may come from there. Empty if they were.
    pub load_differs: Vec<String>,
    /// Whether the load followed the same course in both runs, so that their seconds are compared in pairs.
    pub paired: bool,
    /// What must be known before the figures are believed.
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
    /// The second value by the first; none if one is missing or the first is 0.
    pub ratio: Option<f64>,
    /// 95 % confidence interval of the ratio; none where it cannot be told.
    pub interval: Option<[f64; 2]>,
    /// What that means.
    pub verdict: Verdict,
}

/// What a ratio means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval has 1 in it: the difference may be noise.
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
        summary::warnings(report).into_iter().map(move |warning| format!("{name}: {warning}"))
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
