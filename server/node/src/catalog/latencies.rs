//! A histogram of latencies with a fixed size.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Number of buckets: four for each doubling from 32 µs on.
pub const BUCKETS: usize = 96;
/// Binary logarithm of the smallest time that is told apart, in microseconds.
const FIRST_OCTAVE: u32 = 5;
/// Buckets of one doubling.
const PER_OCTAVE: u64 = 4;

/// Counts of latencies since the version was loaded.
pub struct Latencies([AtomicU64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Latencies {
    /// Counts one.
    pub fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.0.get(bucket(micros)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// The counts by bucket.
    pub fn counts(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|at| self.0.get(at).map_or(0, |count| count.load(Relaxed)))
    }
}

fn bucket(micros: u64) -> usize {
    let micros = micros.max(1 << FIRST_OCTAVE);
    let octave = micros.ilog2();
    let part = (micros >> (octave - 2)) & (PER_OCTAVE - 1);
    let at = u64::from(octave - FIRST_OCTAVE) * PER_OCTAVE + part;
    usize::try_from(at).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Bounds of a bucket in milliseconds.
fn bounds_ms(bucket: usize) -> (f64, f64) {
    let octave = i32::try_from(bucket / 4).unwrap_or(i32::MAX) + FIRST_OCTAVE.cast_signed();
    let part = (bucket % 4) as f64;
    let octave = 2_f64.powi(octave) / 1e3;
    (octave * (1.0 + part / 4.0), octave * (1.0 + (part + 1.0) / 4.0))
}

/// The latency in milliseconds below which this part of all latencies lies, from weights by bucket. `None` without weights.
pub fn quantile_ms(weights: &[f64; BUCKETS], part: f64) -> Option<f64> {
    let total: f64 = weights.iter().sum();
    if total < 0.5 {
        return None;
    }
    let mut left = part * total;
    for (at, &weight) in weights.iter().enumerate() {
        if weight > 0.0 && left <= weight {
            let (low, high) = bounds_ms(at);
            return Some(low + (high - low) * left / weight);
        }
        left -= weight;
    }
    weights.iter().rposition(|&weight| weight > 0.0).map(|last| bounds_ms(last).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_within_the_bounds_of_its_bucket() {
        let mut micros = 32_u64;
        while micros < 500_000_000 {
            let (low, high) = bounds_ms(bucket(micros));
            let ms = micros as f64 / 1e3;
            assert!(low <= ms && ms < high, "{micros} us: {low} to {high} ms");
            micros += 1 + micros / 97;
        }
    }

    #[test]
    fn quantiles_are_within_a_bucket_of_the_truth() {
        let latencies = Latencies::default();
        for ms in 1..=100 {
            latencies.add(Duration::from_millis(ms));
        }
        let weights = latencies.counts().map(|count| count as f64);
        for (part, truth) in [(0.5, 50.0), (0.99, 99.0)] {
            let found = quantile_ms(&weights, part).unwrap();
            assert!((found / truth - 1.0).abs() < 0.13, "{part}: {found} for {truth}");
        }
        assert_eq!(quantile_ms(&[0.0; BUCKETS], 0.5), None);
        latencies.add(Duration::ZERO);
        latencies.add(Duration::from_secs(1_000_000));
        assert_eq!(latencies.counts().iter().sum::<u64>(), 102, "none is lost");
    }
}
