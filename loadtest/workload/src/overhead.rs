//! Overhead of a server, in addition to the time of its models.

use std::sync::Arc;

use rand::RngExt as _;
use serde::Deserialize;

use crate::seeds::Generator;
use crate::spans::Span;
use units::Fault as WorkloadError;

/// Upper bound on the points of a distribution.
const POINTS_MAX: usize = 1_000;

/// Shares at which samples are kept. They are closer together in the tail, which decides whether deadlines are met.
const SHARES: [f64; 16] =
    [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0];

/// A distribution of times, linear between points of share (0 to 1, ascending) and nanoseconds (not falling).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spans(Arc<[(f64, u64)]>);

impl Spans {
    /// Creates a distribution with one value.
    pub fn constant(nanos: u64) -> Self {
        Self(Arc::new([(0.5, nanos)]))
    }

    /// Creates the distribution of samples in nanoseconds. Without samples it is always 0.
    pub fn of_samples(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let Some(last) = samples.len().checked_sub(1) else { return Self::default() };
        let at = |share: f64| {
            let place = (share * last as f64).round() as usize;
            samples.get(place).map(|&nanos| (share, nanos))
        };
        Self(SHARES.into_iter().filter_map(at).collect())
    }

    /// The time that a share of the distribution, 0 to 1, lies at or below; 0 for none.
    pub fn at(&self, share: f64) -> u64 {
        let mut before: Option<(f64, u64)> = None;
        for &(to, nanos) in self.0.iter() {
            if share <= to {
                return match before {
                    Some((from, least)) if to > from => {
                        let part = (share - from) / (to - from);
                        least + (part * (nanos - least) as f64) as u64
                    }
                    _ => nanos,
                };
            }
            before = Some((to, nanos));
        }
        before.map_or(0, |(_, nanos)| nanos)
    }

    /// The mean, in nanoseconds.
    pub fn mean(&self) -> f64 {
        let (Some(&first), Some(&last)) = (self.0.first(), self.0.last()) else { return 0.0 };
        let between = self.0.windows(2).map(|pair| match pair {
            [(from, least), (to, most)] => (to - from) * (least + most) as f64 / 2.0,
            _ => 0.0,
        });
        first.0 * first.1 as f64 + between.sum::<f64>() + (1.0 - last.0) * last.1 as f64
    }

    pub(crate) fn draw(&self, generator: &mut Generator) -> u64 {
        if self.0.is_empty() { 0 } else { self.at(generator.random()) }
    }

    pub(crate) fn read(section: Option<&SpansSection>, field: &str) -> Result<Self, WorkloadError> {
        let wrong = |problem: &str| WorkloadError::new(field, problem);
        match section {
            None => Ok(Self::default()),
            Some(SpansSection::Constant(Span(nanos))) => Ok(Self::constant(*nanos)),
            Some(SpansSection::Points(points)) => {
                if points.is_empty() || points.len() > POINTS_MAX {
                    return Err(wrong(&format!("expected 1 to {POINTS_MAX} points [share, time]")));
                }
                let ascending = points.is_sorted_by(|a, b| a.0 < b.0 && a.1.0 <= b.1.0);
                let shares = points.iter().all(|(share, _)| (0.0..=1.0).contains(share));
                if !ascending || !shares {
                    return Err(wrong("expected shares from 0 to 1, ascending, and times that do not fall"));
                }
                Ok(Self(points.iter().map(|&(share, Span(nanos))| (share, nanos)).collect()))
            }
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a time, or points like [[0.5, \"200us\"], [0.99, \"1ms\"]]")]
pub(crate) enum SpansSection {
    Constant(Span),
    Points(Vec<(f64, Span)>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_that_of_its_samples() {
        let spans = Spans::of_samples((0..=1_000).map(|n| n * 1_000).collect());
        assert_eq!(
            (spans.at(0.0), spans.at(0.25), spans.at(0.5), spans.at(1.0)),
            (0, 250_000, 500_000, 1_000_000)
        );
        assert!((spans.mean() - 500_000.0).abs() < 1.0);
        assert_eq!(Spans::constant(7).at(0.1), 7);
        assert_eq!(Spans::constant(7).mean(), 7.0);
        assert_eq!((Spans::default().at(0.5), Spans::default().mean()), (0, 0.0));
        assert_eq!(Spans::of_samples(Vec::new()), Spans::default());
    }
}
