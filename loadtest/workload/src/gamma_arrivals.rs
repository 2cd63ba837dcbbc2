//! Gamma arrivals of one model, without a workload file.

use units::Fault as WorkloadError;

use crate::limits::DURATION_MAX;
use crate::process::Process;
use crate::spans::SECOND;
use crate::stream::Stream;

/// Requests of one model whose gaps are gamma-distributed, as nanoseconds from the start.
///
/// The gap before the first request is drawn like every other one, as if a request had arrived at time zero. Published
/// simulators (AlpaServe's) start this way; workload files start at a random moment instead.
#[derive(Debug)]
pub struct GammaArrivals(Stream);

impl GammaArrivals {
    /// Arrivals for `duration_ns` nanoseconds. `rate` is in requests a second, `cv` the coefficient of variation of the gaps
    /// (1: Poisson). The same `seed` and `name` give the same arrivals.
    pub fn new(rate: f64, cv: f64, seed: u64, name: &str, duration_ns: u64) -> Result<Self, WorkloadError> {
        check("rate", rate, 1e9)?;
        check("cv", cv, 100.0)?;
        let process = Process::Gamma { rate: rate / SECOND as f64, cv };
        let stream = Stream::new(&process, seed, name, duration_ns.min(DURATION_MAX));
        Ok(Self(stream.after_arrival()))
    }
}

impl Iterator for GammaArrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0.next()
    }
}

fn check(field: &str, value: f64, most: f64) -> Result<(), WorkloadError> {
    if value > 0.0 && value <= most {
        return Ok(());
    }
    Err(WorkloadError::new(field, format!("expected more than 0 and at most {most}, got {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_burstiness_are_as_asked() {
        let arrivals: Vec<u64> = GammaArrivals::new(50.0, 2.0, 7, "a", 4_000 * SECOND).unwrap().collect();
        let gaps: Vec<f64> =
            arrivals.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / SECOND as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 50.0 - 1.0).abs() < 0.02, "mean gap {mean}");
        assert!((variance.sqrt() / mean / 2.0 - 1.0).abs() < 0.03, "cv {}", variance.sqrt() / mean);
    }

    #[test]
    fn seeds_and_names_decide() {
        let first = |seed, name| GammaArrivals::new(10.0, 4.0, seed, name, 60 * SECOND).unwrap().next();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
    }

    #[test]
    fn impossible_values_are_named() {
        let found = GammaArrivals::new(0.0, 1.0, 1, "a", SECOND).unwrap_err().to_string();
        assert!(found.contains("rate") && found.contains("more than 0"), "{found}");
        assert!(GammaArrivals::new(1.0, f64::NAN, 1, "a", SECOND).is_err());
    }
}
