//! Least squares for the regressions, with cross-validation.

/// A latency measured under contention.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Values of the regression's terms.
    pub terms: Vec<f64>,
    /// Measured factor on the solo latency, above 0.
    pub factor: f64,
    /// Fold with which it is left out: its row, or its pair of models.
    pub fold: u32,
}

/// Relative errors of predictions, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Mean error.
    pub mean_pct: f64,
    /// 90th percentile of the errors.
    pub p90_pct: f64,
    /// 95th percentile of the errors.
    pub p95_pct: f64,
    /// Largest error.
    pub max_pct: f64,
}

/// Why a fit is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// All samples must have the same number of terms. Terms and factors must be finite, and factors above 0.
    #[error("sample {0}: expected finite terms, as many as in the first sample, and a factor above 0")]
    Sample(usize),
    /// The samples do not tell the terms apart.
    #[error("samples: expected more than {0} that tell all terms apart")]
    Singular(usize),
}

/// Solves the symmetric positive definite system `matrix * x = right`, row by row (Cholesky).
pub(super) fn solve(matrix: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let at = |rows: &[Vec<f64>], i: usize, j: usize| {
        rows.get(i).and_then(|row| row.get(j)).copied().unwrap_or(0.0)
    };
    let mut lower: Vec<Vec<f64>> = Vec::with_capacity(matrix.len());
    let mut forward: Vec<f64> = Vec::with_capacity(matrix.len());
    for (i, value) in right.iter().enumerate() {
        let mut row: Vec<f64> = Vec::with_capacity(i.saturating_add(1));
        for j in 0..i {
            let dot: f64 = (0..j).map(|k| row.get(k).copied().unwrap_or(0.0) * at(&lower, j, k)).sum();
            row.push((at(matrix, i, j) - dot) / at(&lower, j, j));
        }
        let square = at(matrix, i, i) - row.iter().map(|value| value * value).sum::<f64>();
        if square.is_nan() || square <= 1e-12 * at(matrix, i, i) {
            return None;
        }
        let known: f64 = row.iter().zip(&forward).map(|(weight, known)| weight * known).sum();
        row.push(square.sqrt());
        forward.push((value - known) / square.sqrt());
        lower.push(row);
    }
    let size = right.len();
    let mut solution = vec![0.0; size];
    for i in (0..size).rev() {
        let known: f64 = (i.saturating_add(1)..size)
            .map(|k| at(&lower, k, i) * solution.get(k).copied().unwrap_or(0.0))
            .sum();
        let value = (forward.get(i).copied().unwrap_or(0.0) - known) / at(&lower, i, i);
        match solution.get_mut(i) {
            Some(entry) => *entry = value,
            None => invariant::violated!("interference.solution_too_short"),
        }
    }
    Some(solution)
}

/// Returns the weights of the terms that minimise the sum of the squared relative errors.
///
/// # Errors
/// [`FitError`] if a sample is not finite or the terms cannot be told apart.
pub fn least_squares(samples: &[Sample]) -> Result<Vec<f64>, FitError> {
    fit(samples, |_| true)
}

fn fit(samples: &[Sample], takes: impl Fn(&Sample) -> bool) -> Result<Vec<f64>, FitError> {
    let size = samples.first().map_or(0, |sample| sample.terms.len());
    let mut matrix = vec![vec![0.0; size]; size];
    let mut right = vec![0.0; size];
    for (position, sample) in samples.iter().enumerate().filter(|(_, sample)| takes(sample)) {
        let sound = sample.terms.len() == size && sample.terms.iter().all(|term| term.is_finite());
        if !sound || !sample.factor.is_finite() || sample.factor <= 0.0 {
            return Err(FitError::Sample(position));
        }
        let relative: Vec<f64> = sample.terms.iter().map(|term| term / sample.factor).collect();
        for ((row, right), own) in matrix.iter_mut().zip(&mut right).zip(&relative) {
            for (entry, other) in row.iter_mut().zip(&relative) {
                *entry += own * other;
            }
            *right += own;
        }
    }
    solve(&matrix, &right).filter(|weights| !weights.is_empty()).ok_or(FitError::Singular(size))
}

fn relative_error(sample: &Sample, weights: &[f64]) -> f64 {
    let predicted: f64 = sample.terms.iter().zip(weights).map(|(term, weight)| term * weight).sum();
    (predicted / sample.factor - 1.0).abs()
}

/// Returns the errors of the given weights on the samples, or `None` without samples.
pub fn errors(samples: &[Sample], weights: &[f64]) -> Option<Errors> {
    summary(samples.iter().map(|sample| relative_error(sample, weights)).collect())
}

/// Returns the errors on each fold of weights fitted to all other folds, or `None` without samples.
///
/// # Errors
/// [`FitError`] if the samples outside a fold cannot be fitted.
pub fn cross_validated(samples: &[Sample]) -> Result<Option<Errors>, FitError> {
    let mut folds: Vec<u32> = samples.iter().map(|sample| sample.fold).collect();
    folds.sort_unstable();
    folds.dedup();
    let mut found = Vec::with_capacity(samples.len());
    for fold in folds {
        let weights = fit(samples, |sample| sample.fold != fold)?;
        let left_out = samples.iter().filter(|sample| sample.fold == fold);
        found.extend(left_out.map(|sample| relative_error(sample, &weights)));
    }
    Ok(summary(found))
}

pub(super) fn summary(mut found: Vec<f64>) -> Option<Errors> {
    found.sort_unstable_by(f64::total_cmp);
    let count = u32::try_from(found.len()).ok().filter(|count| *count > 0)?;
    let rank = |pct: usize| found.len().saturating_mul(pct).div_ceil(100).saturating_sub(1);
    let at = |rank: usize| found.get(rank).map(|error| 100.0 * error);
    Some(Errors {
        mean_pct: 100.0 * found.iter().sum::<f64>() / f64::from(count),
        p90_pct: at(rank(90))?,
        p95_pct: at(rank(95))?,
        max_pct: at(found.len().saturating_sub(1))?,
    })
}
