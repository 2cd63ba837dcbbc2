//! The figures that are compared.

use serde::Serialize;

use crate::report::{Figures, Latency};

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Metric {
    /// Right answers in time, a second.
    Goodput,
    /// Right answers in time by requests that were due, 0 to 1.
    Attainment,
    /// Refused requests by requests that were due, 0 to 1.
    RefusedShare,
    /// Mean latency, milliseconds.
    MeanMs,
    /// Median latency, milliseconds.
    P50Ms,
    /// 90 % of the answers take at most this long, milliseconds.
    P90Ms,
    /// 99 % of the answers take at most this long, milliseconds.
    P99Ms,
    /// 99.9 % of the answers take at most this long, milliseconds.
    #[serde(rename = "p99_9_ms")]
    P999Ms,
    /// Processor time of the client a request, microseconds.
    ClientCpu,
}

impl Metric {
    /// The metrics whose noise is known.
    pub(super) const ALL: [Self; 8] = [
        Self::Goodput,
        Self::Attainment,
        Self::RefusedShare,
        Self::MeanMs,
        Self::P50Ms,
        Self::P90Ms,
        Self::P99Ms,
        Self::P999Ms,
    ];

    /// Its title in tables, with its unit.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput/s",
            Self::Attainment => "attainment",
            Self::RefusedShare => "refused",
            Self::MeanMs => "mean ms",
            Self::P50Ms => "p50 ms",
            Self::P90Ms => "p90 ms",
            Self::P99Ms => "p99 ms",
            Self::P999Ms => "p99.9 ms",
            Self::ClientCpu => "client CPU us a request",
        }
    }

    /// Whether it is a share, shown in percent.
    pub(super) fn is_share(self) -> bool {
        matches!(self, Self::Attainment | Self::RefusedShare)
    }

    /// Whether larger values are better.
    pub(super) fn more_is_better(self) -> bool {
        matches!(self, Self::Goodput | Self::Attainment)
    }

    /// The share of answers below it; none for a metric that is not a percentile.
    pub(super) fn percentile(self) -> Option<f64> {
        match self {
            Self::P50Ms => Some(0.5),
            Self::P90Ms => Some(0.9),
            Self::P99Ms => Some(0.99),
            Self::P999Ms => Some(0.999),
            _ => None,
        }
    }

    /// Whether it covers only answered requests.
    pub(super) fn is_latency(self) -> bool {
        self == Self::MeanMs || self.percentile().is_some()
    }

    pub(super) fn value(self, figures: &Figures) -> Option<f64> {
        let latency = |pick: fn(&Latency) -> f64| figures.latency.as_ref().map(pick);
        match self {
            Self::Goodput => Some(figures.goodput),
            Self::Attainment => Some(figures.attainment),
            Self::RefusedShare => {
                (figures.offered > 0).then(|| refused(figures) as f64 / figures.offered as f64)
            }
            Self::MeanMs => latency(|latency| latency.mean_ms),
            Self::P50Ms => latency(|latency| latency.p50_ms),
            Self::P90Ms => latency(|latency| latency.p90_ms),
            Self::P99Ms => latency(|latency| latency.p99_ms),
            Self::P999Ms => latency(|latency| latency.p99_9_ms),
            Self::ClientCpu => None,
        }
    }
}

/// Refused requests, for whatever reason.
pub(super) fn refused(figures: &Figures) -> u64 {
    figures.refused.values().sum()
}
