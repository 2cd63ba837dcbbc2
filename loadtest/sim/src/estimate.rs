//! Means over seeds and how sure they are.

use serde::Serialize;

/// A mean over independent runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval (Student's t); none with fewer than two runs.
    pub margin: Option<f64>,
}

/// 97.5 % quantiles of Student's t for 1, 2, 3 ... degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The quantile for any number of degrees of freedom from 1 on; beyond the table the normal quantile with the first
/// two terms of the Cornish-Fisher expansion, which is right to four digits there.
fn student(freedom: usize) -> f64 {
    let z = 1.959_964_f64;
    let listed = freedom.checked_sub(1).and_then(|index| STUDENT.get(index)).copied();
    let n = freedom as f64;
    let expanded =
        z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n);
    listed.unwrap_or(expanded)
}

impl Estimate {
    /// Estimates the mean of `values`. The mean of no values is 0.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        let margin = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            student(count - 1) * (squares / (count - 1) as f64 / count as f64).sqrt()
        });
        Self { mean, margin }
    }

    /// Whether the intervals of both overlap, so that neither can be said to be larger.
    pub fn ties(&self, other: &Self) -> bool {
        (self.mean - other.mean).abs() <= self.margin.unwrap_or(0.0) + other.margin.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        let estimate = Estimate::of(&[9.0, 10.0, 11.0, 10.0, 10.0]);
        assert_eq!(estimate.mean, 10.0);
        // Standard error sqrt(0.5 / 5), four degrees of freedom.
        assert!((estimate.margin.unwrap() - 2.776 * 0.1_f64.sqrt()).abs() < 1e-9);
        assert_eq!(Estimate::of(&[3.0]), Estimate { mean: 3.0, margin: None });
        assert_eq!(Estimate::of(&[]).mean, 0.0);
    }

    #[test]
    fn beyond_the_table_it_goes_on_smoothly() {
        assert!((student(31) - 2.0395).abs() < 5e-4 && (student(100) - 1.984).abs() < 5e-4);
        assert!((1..200).all(|freedom| student(freedom) > student(freedom + 1)));
    }

    #[test]
    fn overlapping_intervals_tie() {
        let of = |mean, margin| Estimate { mean, margin: Some(margin) };
        assert!(of(10.0, 1.0).ties(&of(11.5, 0.5)));
        assert!(!of(10.0, 1.0).ties(&of(11.6, 0.5)));
    }
}
