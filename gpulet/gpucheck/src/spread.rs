//! Percentiles of times by nearest rank: each is a time that was measured.

use std::time::Duration;

use serde_json::{Value, json};

/// Sorted values, usually microseconds; never empty.
#[derive(Clone, Debug)]
pub struct Spread(Vec<f64>);

impl Spread {
    /// Microseconds of these times; none without times.
    pub fn of(times: &[Duration]) -> Option<Self> {
        Self::of_numbers(times.iter().map(|time| time.as_secs_f64() * 1e6).collect())
    }

    /// Of these numbers; none without numbers.
    pub fn of_numbers(mut sorted: Vec<f64>) -> Option<Self> {
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Self(sorted))
    }

    /// The smallest value that at least `hundredth` percent of the values do not exceed.
    pub fn percentile(&self, hundredth: usize) -> f64 {
        let rank = (self.0.len() * hundredth.min(100)).div_ceil(100).saturating_sub(1);
        self.0.get(rank).copied().unwrap_or(0.0)
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// The 99th percentile.
    pub fn p99(&self) -> f64 {
        self.percentile(99)
    }

    /// Number of values.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// For the details of a fact.
    pub fn to_json(&self) -> Value {
        let last = self.percentile(100);
        json!({"count": self.count(), "p50": self.median(), "p95": self.percentile(95), "p99": self.p99(), "max": last})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        let spread = Spread::of(&times).unwrap();
        assert_eq!((spread.median(), spread.p99(), spread.percentile(100)), (100.0, 198.0, 200.0));
        assert_eq!(Spread::of(&times[..1]).unwrap().p99(), 200.0);
        assert!(Spread::of(&[]).is_none());
    }
}
