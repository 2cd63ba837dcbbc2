//! Repairs a grid that must not fall along one axis nor rise along the other, by least squares.

/// Largest number of sweeps in both directions. Noise of a few percent needs fewer than ten.
const SWEEPS: usize = 64;

/// Returns the non-decreasing fit of `values` with `weights` (pool adjacent violators).
fn pool(values: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<(f64, f64, usize)> = Vec::with_capacity(values.len());
    for (value, weight) in values.iter().zip(weights) {
        let mut block = (*value, *weight, 1);
        while let Some(last) = blocks.pop_if(|last| last.0 > block.0) {
            let weight = last.1 + block.1;
            block = ((last.0 * last.1 + block.0 * block.1) / weight, weight, last.2 + block.2);
        }
        blocks.push(block);
    }
    blocks.into_iter().flat_map(|(value, _, length)| std::iter::repeat_n(value, length)).collect()
}

/// A point and its weight; `None` where nothing was measured.
type Point = Option<(f64, f64)>;

fn pool_known(line: &[Point]) -> Vec<Point> {
    let (values, weights): (Vec<f64>, Vec<f64>) = line.iter().flatten().copied().unzip();
    let mut pooled = pool(&values, &weights).into_iter();
    line.iter().map(|point| point.and_then(|(_, weight)| Some((pooled.next()?, weight)))).collect()
}

fn transposed(rows: &[Vec<Point>]) -> Vec<Vec<Point>> {
    let width = rows.first().map_or(0, Vec::len);
    (0..width).map(|at| rows.iter().map(|row| row.get(at).copied().flatten()).collect()).collect()
}

/// Returns `grid[i][j]` made non-decreasing in j and non-increasing in i, close to the given values, also across
/// gaps. All rows must have the same length, and all weights must be above 0.
pub(super) fn repair(grid: &[Vec<Point>]) -> Vec<Vec<Point>> {
    let mut current = grid.to_vec();
    for _ in 0..SWEEPS {
        let rows: Vec<_> = current.iter().map(|row| pool_known(row)).collect();
        let columns = transposed(&rows).into_iter().map(|mut column| {
            column.reverse();
            let mut column = pool_known(&column);
            column.reverse();
            column
        });
        let next = transposed(&columns.collect::<Vec<_>>());
        let settled = next == current;
        current = next;
        if settled {
            break;
        }
    }
    // Alternating projections leave only rounding errors. This makes the order exact.
    let width = current.first().map_or(0, Vec::len);
    let mut under = vec![0.0_f64; width];
    for row in current.iter_mut().rev() {
        let mut highest = 0.0_f64;
        for (point, under) in row.iter_mut().zip(&mut under) {
            if let Some((value, _)) = point {
                highest = highest.max(*value).max(*under);
                *value = highest;
                *under = highest;
            }
        }
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(values: &[&[f64]]) -> Vec<Vec<Point>> {
        values
            .iter()
            .map(|row| row.iter().map(|value| value.is_finite().then_some((*value, 1.0))).collect())
            .collect()
    }

    #[test]
    fn pools_to_the_weighted_mean() {
        assert_eq!(pool(&[1.0, 3.0, 2.0, 4.0], &[1.0; 4]), [1.0, 2.5, 2.5, 4.0]);
        assert_eq!(pool(&[3.0, 1.0], &[3.0, 1.0]), [2.5, 2.5]);
    }

    #[test]
    fn a_sound_grid_stays_as_it_is() {
        let grid = grid(&[&[4.0, 8.0], &[2.0, f64::NAN]]);
        assert_eq!(repair(&grid), grid);
    }

    #[test]
    fn a_noisy_grid_becomes_monotone_both_ways() {
        let fit = repair(&grid(&[&[5.0, 4.0, 9.0], &[6.0, f64::NAN, 6.0], &[1.0, 8.0, 3.0]]));
        for row in &fit {
            assert!(row.iter().flatten().map(|(value, _)| value).is_sorted(), "{fit:?}");
        }
        for column in transposed(&fit) {
            assert!(column.iter().rev().flatten().map(|(value, _)| value).is_sorted(), "{fit:?}");
        }
    }
}
