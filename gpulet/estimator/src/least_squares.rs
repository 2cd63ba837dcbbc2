//! Least squares with coefficients of 0 and more, by the active set method (Lawson and Hanson, Solving Least Squares Problems,
//! 1974, chapter 23) on the normal equations.

use crate::cholesky::{Cholesky, dot};

/// Added to the diagonal of the scaled normal equations, so that columns that depend on each other have one solution.
const RIDGE: f64 = 1e-9;
/// Smallest slope, of columns scaled to length 1, for which a column is worth adding.
const SLOPE: f64 = 1e-10;

/// Returns the coefficients x >= 0 that minimise |A x - b|² + 2 penaltyᵀ x, where `rows` are the rows of A. A `penalty` of a column is in
/// units of the scaled column (length 1), and may be 0. Rows with values that are not finite are left out.
pub(crate) fn non_negative(rows: &[Vec<f64>], right: &[f64], penalty: &[f64]) -> Vec<f64> {
    let width = penalty.len();
    let sane = |row: &&Vec<f64>, value: &f64| {
        row.len() == width && value.is_finite() && row.iter().all(|value| value.is_finite())
    };
    let known: Vec<(&Vec<f64>, f64)> = rows
        .iter()
        .zip(right)
        .filter(|(row, value)| sane(row, value))
        .map(|(row, value)| (row, *value))
        .collect();
    let mut normal = vec![vec![0.0; width]; width];
    let mut slope = vec![0.0; width];
    for (row, value) in &known {
        for ((sums, sum), one) in normal.iter_mut().zip(&mut slope).zip(row.iter()) {
            *sum += one * value;
            for (sum, other) in sums.iter_mut().zip(row.iter()) {
                *sum += one * other;
            }
        }
    }
    // Columns of length 1: those of numbers of operators and of bytes differ by many orders of magnitude.
    let lengths: Vec<f64> = normal
        .iter()
        .enumerate()
        .map(|(at, row)| row.get(at).copied().unwrap_or(0.0).sqrt())
        .map(|length| if length > 0.0 { length } else { f64::INFINITY })
        .collect();
    for (row, length) in normal.iter_mut().zip(&lengths) {
        for (value, other) in row.iter_mut().zip(&lengths) {
            *value /= length * other;
        }
    }
    for (at, row) in normal.iter_mut().enumerate() {
        if let Some(value) = row.get_mut(at) {
            *value += RIDGE;
        }
    }
    let slope: Vec<f64> = slope
        .iter()
        .zip(&lengths)
        .zip(penalty)
        .map(|((sum, length), penalty)| sum / length - penalty)
        .collect();
    let scaled = active_set(&normal, &slope);
    scaled.iter().zip(&lengths).map(|(value, length)| value / length).collect()
}

/// Minimises xᵀ G x / 2 - cᵀ x for x >= 0.
fn active_set(normal: &[Vec<f64>], slope: &[f64]) -> Vec<f64> {
    let mut best = vec![0.0; slope.len()];
    let mut used: Vec<usize> = Vec::new();
    let mut refused: Vec<usize> = Vec::new();
    // Each pass adds a column or refuses one. The limit is for rounding errors only.
    for _ in 0..slope.len().saturating_mul(10) {
        let gains = normal.iter().zip(slope).map(|(row, slope)| slope - dot(row, &best)).enumerate();
        let open = gains.filter(|(at, gain)| *gain > SLOPE && !used.contains(at) && !refused.contains(at));
        let Some((next, _)) = open.max_by(|one, other| one.1.total_cmp(&other.1)) else { break };
        used.push(next);
        if !settle(normal, slope, &mut used, &mut best) || !used.contains(&next) {
            used.retain(|at| *at != next);
            refused.push(next);
        } else {
            refused.clear();
        }
    }
    best
}

/// Solves for the used columns, and removes columns with negative results until all results are at least 0. Returns false if the
/// equations cannot be solved.
fn settle(normal: &[Vec<f64>], slope: &[f64], used: &mut Vec<usize>, best: &mut [f64]) -> bool {
    while !used.is_empty() {
        let pick =
            |values: &[f64]| -> Vec<f64> { used.iter().filter_map(|at| values.get(*at).copied()).collect() };
        let matrix: Vec<Vec<f64>> =
            used.iter().filter_map(|at| normal.get(*at)).map(|row| pick(row)).collect();
        let Some(factors) = Cholesky::new(&matrix) else { return false };
        let solved = factors.solve(&pick(slope));
        let before = pick(best);
        let steps =
            solved.iter().zip(&before).filter(|(new, _)| **new <= 0.0).map(|(new, old)| old / (old - new));
        let step = steps.filter(|step| step.is_finite()).fold(1.0, f64::min);
        for ((at, new), old) in used.iter().zip(&solved).zip(&before) {
            if let Some(value) = best.get_mut(*at) {
                *value = if *new <= 0.0 && old / (old - new) <= step {
                    0.0
                } else {
                    (old + step * (new - old)).max(0.0)
                };
            }
        }
        if solved.iter().all(|new| *new > 0.0) {
            return true;
        }
        used.retain(|at| best.get(*at).is_some_and(|value| *value > 0.0));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(rows: &[Vec<f64>], right: &[f64], found: &[f64]) -> f64 {
        rows.iter().zip(right).map(|(row, wanted)| (dot(row, found) - wanted).powi(2)).sum()
    }

    /// The best of all sets of columns that may be above 0.
    fn brute_force(rows: &[Vec<f64>], right: &[f64], width: usize) -> f64 {
        let mut least = error(rows, right, &vec![0.0; width]);
        for set in 1_u32..1 << width {
            let used: Vec<usize> = (0..width).filter(|at| set & (1 << at) != 0).collect();
            let part: Vec<Vec<f64>> =
                rows.iter().map(|row| used.iter().map(|at| row[*at]).collect()).collect();
            let column = |at: usize| part.iter().map(|row| row[at]).collect::<Vec<f64>>();
            let normal: Vec<Vec<f64>> = (0..used.len())
                .map(|one| (0..used.len()).map(|other| dot(&column(one), &column(other))).collect())
                .collect();
            let slope: Vec<f64> = (0..used.len()).map(|at| dot(&column(at), right)).collect();
            let Some(factors) = Cholesky::new(&normal) else { continue };
            let solved = factors.solve(&slope);
            if solved.iter().all(|value| *value >= 0.0) {
                least = least.min(error(&part, right, &solved));
            }
        }
        least
    }

    #[test]
    fn finds_exact_coefficients_whatever_the_scale_of_the_columns() {
        let rows: Vec<Vec<f64>> =
            (1..12).map(f64::from).map(|at| vec![1.0, at * 1e9, (at * at) * 1e-3, 7.0 * at.sin()]).collect();
        let wanted = [3.0, 2e-9, 0.0, 0.5];
        let right: Vec<f64> = rows.iter().map(|row| dot(row, &wanted)).collect();
        let found = non_negative(&rows, &right, &[0.0; 4]);
        for (row, wanted) in rows.iter().zip(right) {
            assert!((dot(row, &found) - wanted).abs() < 1e-6 * wanted, "{found:?}");
        }
    }

    #[test]
    fn rows_that_are_not_finite_are_left_out() {
        let rows = [vec![1.0], vec![f64::NAN], vec![f64::INFINITY], vec![2.0]];
        let found = non_negative(&rows, &[2.0, 5.0, 5.0, 4.0], &[0.0]);
        assert!((found[0] - 2.0).abs() < 1e-6);
        assert_eq!(non_negative(&[], &[], &[0.0, 0.0]), [0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn no_set_of_columns_does_better(
            rows in prop::collection::vec(prop::collection::vec(-3.0_f64..3.0, 4), 4..9),
            right in prop::collection::vec(-3.0_f64..3.0, 9),
        ) {
            let right = &right[..rows.len()];
            let found = non_negative(&rows, right, &[0.0; 4]);
            prop_assert!(found.iter().all(|value| *value >= 0.0 && value.is_finite()));
            let (got, least) = (error(&rows, right, &found), brute_force(&rows, right, 4));
            prop_assert!(got <= least * (1.0 + 1e-4) + 1e-4, "{got} instead of {least}");
        }
    }
}
