//! Percentiles of times: times that happened, not between them.

use std::time::Duration;

use serde_json::{Value, json};

/// Sorted microseconds; never empty.
#[derive(Clone, Debug)]
pub struct Spread(Vec<f64>);

impl Spread {
    /// Of some times; `None`: there are none.
    pub fn of(times: &[Duration]) -> Option<Self> {
        Self::of_numbers(times.iter().map(|time| time.as_secs_f64() * 1e6).collect())
    }

    /// Of any numbers; `None`: there are none.
    pub fn of_numbers(mut sorted: Vec<f64>) -> Option<Self> {
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Self(sorted))
    }

    /// The smallest time that at least so many in a hundred do not exceed.
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

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// As details of a fact.
    pub fn to_json(&self) -> Value {
        let last = self.percentile(100);
        json!({"count": self.count(), "p50": self.median(), "p95": self.percentile(95), "p99": self.p99(), "max": last})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_happened() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        let spread = Spread::of(&times).unwrap();
        assert_eq!((spread.median(), spread.p99(), spread.percentile(100)), (100.0, 198.0, 200.0));
        assert_eq!(Spread::of(&times[..1]).unwrap().p99(), 200.0);
        assert!(Spread::of(&[]).is_none());
    }
}
