//! Cholesky factors of small dense matrices.

/// The lower triangle L of a symmetric positive definite matrix A = L Lᵀ, row by row.
#[derive(Clone, Debug)]
pub struct Cholesky {
    rows: Vec<Vec<f64>>,
}

impl Cholesky {
    /// Factors a matrix, of which only the lower triangle is read. `None` if it is not positive definite.
    pub fn new(matrix: &[Vec<f64>]) -> Option<Self> {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(matrix.len());
        for wanted in matrix {
            let mut row: Vec<f64> = Vec::with_capacity(rows.len() + 1);
            for (done, value) in rows.iter().zip(wanted) {
                row.push((value - dot(&row, done)) / done.last()?);
            }
            let pivot = wanted.get(rows.len())? - dot(&row, &row);
            if !(pivot.is_finite() && pivot > 0.0) {
                return None;
            }
            row.push(pivot.sqrt());
            rows.push(row);
        }
        Some(Self { rows })
    }

    /// Solves L y = b.
    pub fn forward(&self, right: &[f64]) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(right.len());
        for (row, value) in self.rows.iter().zip(right) {
            let pivot = row.last().copied().unwrap_or(1.0);
            solved.push((value - dot(&solved, row)) / pivot);
        }
        solved
    }

    /// Solves A x = b.
    pub fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut open = self.forward(right);
        let mut solved = Vec::with_capacity(open.len());
        for row in self.rows.iter().rev() {
            let Some(value) = open.pop() else { break };
            let found = value / row.last().copied().unwrap_or(1.0);
            for (rest, factor) in open.iter_mut().zip(row) {
                *rest -= factor * found;
            }
            solved.push(found);
        }
        solved.reverse();
        solved
    }

    /// Logarithm of the determinant of A.
    pub fn log_determinant(&self) -> f64 {
        2.0 * self.rows.iter().filter_map(|row| row.last()).map(|pivot| pivot.ln()).sum::<f64>()
    }
}

/// Sum of products, as far as both go.
pub(crate) fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solves_what_it_factors() {
        let matrix = vec![vec![4.0, 2.0, 0.5], vec![2.0, 3.0, 1.0], vec![0.5, 1.0, 2.0]];
        let factors = Cholesky::new(&matrix).unwrap();
        let solved = factors.solve(&[1.0, -2.0, 3.0]);
        for (row, wanted) in matrix.iter().zip([1.0, -2.0, 3.0]) {
            assert!((dot(row, &solved) - wanted).abs() < 1e-12);
        }
        let determinant: f64 = 4.0 * (6.0 - 1.0) - 2.0 * (4.0 - 0.5) + 0.5 * (2.0 - 1.5);
        assert!((factors.log_determinant() - determinant.ln()).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factors() {
        assert!(Cholesky::new(&[vec![1.0, 2.0], vec![2.0, 1.0]]).is_none());
        assert!(Cholesky::new(&[vec![f64::NAN]]).is_none());
        assert!(Cholesky::new(&[vec![1.0], vec![1.0]]).is_none());
    }
}
