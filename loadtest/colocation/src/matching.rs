//! Matchings of greatest weight in a bipartite graph: the method of Kuhn and Munkres, in cubic time.

/// Finds for each row the column that it is matched with, so that the sum of the weights is greatest. Each column is used once.
/// With more rows than columns, some rows get none. Weights are finite and at least 0; missing ones count as 0.
#[must_use]
pub fn greatest(weights: &[Vec<f64>]) -> Vec<Option<usize>> {
    let rows = weights.len();
    let columns = weights.iter().map(Vec::len).max().unwrap_or(0);
    let size = rows.max(columns);
    // The method minimises costs in a square.
    let cost = |row: usize, column: usize| {
        -weights.get(row).and_then(|row| row.get(column)).copied().unwrap_or_default()
    };
    let mut assignment = Assignment::new(size);
    for row in 0..size {
        assignment.add(row, &cost);
    }
    let mut matched = vec![None; rows];
    for (column, row) in assignment.row_of.iter().enumerate().filter(|(column, _)| *column < columns) {
        if let Some(place) = row.and_then(|row| matched.get_mut(row)) {
            *place = Some(column);
        }
    }
    matched
}

/// Rows that have been assigned so far, and potentials that prove that their cost is least.
struct Assignment {
    row_of: Vec<Option<usize>>,
    of_row: Vec<f64>,
    of_column: Vec<f64>,
}

/// A column in the search for a free one.
#[derive(Clone, Copy)]
struct Reached {
    slack: f64,
    /// The column before it on the path; none for the first.
    from: Option<usize>,
    done: bool,
}

impl Assignment {
    fn new(size: usize) -> Self {
        Self { row_of: vec![None; size], of_row: vec![0.0; size], of_column: vec![0.0; size] }
    }

    /// Assigns one more row along the shortest path to a free column.
    fn add(&mut self, row: usize, cost: &dyn Fn(usize, usize) -> f64) {
        let mut reached = vec![Reached { slack: f64::INFINITY, from: None, done: false }; self.row_of.len()];
        let (mut row_now, mut column_now) = (row, None);
        loop {
            for (column, place) in reached.iter_mut().enumerate().filter(|(_, place)| !place.done) {
                let slack = cost(row_now, column) - at(&self.of_row, row_now) - at(&self.of_column, column);
                if slack < place.slack {
                    *place = Reached { slack, from: column_now, done: false };
                }
            }
            let open = reached.iter().enumerate().filter(|(_, place)| !place.done);
            let Some((next, delta)) = open
                .map(|(column, place)| (column, place.slack))
                .min_by(|one, other| one.1.total_cmp(&other.1))
            else {
                return;
            };
            self.shift(row, delta, &mut reached);
            if let Some(place) = reached.get_mut(next) {
                place.done = true;
            }
            column_now = Some(next);
            match self.row_of.get(next).copied().flatten() {
                Some(taken_by) => row_now = taken_by,
                None => break,
            }
        }
        self.follow(row, column_now, &reached);
    }

    /// Moves the potentials by the distance to the next column.
    fn shift(&mut self, row: usize, delta: f64, reached: &mut [Reached]) {
        add(&mut self.of_row, row, delta);
        for (column, place) in reached.iter_mut().enumerate() {
            if place.done {
                add(&mut self.of_column, column, -delta);
                if let Some(row) = self.row_of.get(column).copied().flatten() {
                    add(&mut self.of_row, row, delta);
                }
            } else {
                place.slack -= delta;
            }
        }
    }

    /// Moves the rows on the path to `end` by one column each, which frees the first for `row`.
    fn follow(&mut self, row: usize, end: Option<usize>, reached: &[Reached]) {
        let mut column = end;
        while let Some(place) = column {
            let from = reached.get(place).and_then(|place| place.from);
            let moved = match from {
                Some(from) => self.row_of.get(from).copied().flatten(),
                None => Some(row),
            };
            if let Some(slot) = self.row_of.get_mut(place) {
                *slot = moved;
            }
            column = from;
        }
    }
}

fn at(values: &[f64], index: usize) -> f64 {
    values.get(index).copied().unwrap_or_default()
}

fn add(values: &mut [f64], index: usize, amount: f64) {
    if let Some(value) = values.get_mut(index) {
        *value += amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The greatest sum over all ways to give rows different columns, or none.
    fn best(weights: &[Vec<f64>], used: &mut Vec<bool>) -> f64 {
        let Some((row, rest)) = weights.split_first() else { return 0.0 };
        let mut greatest = best(rest, used);
        for column in 0..used.len() {
            if !used[column] {
                used[column] = true;
                greatest = greatest.max(row[column] + best(rest, used));
                used[column] = false;
            }
        }
        greatest
    }

    proptest! {
        #[test]
        fn no_other_matching_is_heavier(
            (columns, weights) in (1_usize..6).prop_flat_map(|columns| {
                let row = proptest::collection::vec(0.0_f64..10.0, columns);
                (Just(columns), proptest::collection::vec(row, 0..6))
            })
        ) {
            let matched = greatest(&weights);
            let taken: Vec<usize> = matched.iter().flatten().copied().collect();
            let distinct: std::collections::BTreeSet<_> = taken.iter().collect();
            prop_assert_eq!(distinct.len(), taken.len());
            prop_assert_eq!(taken.len(), weights.len().min(columns));
            let sum: f64 = weights.iter().zip(&matched).filter_map(|(row, column)| column.map(|column| row[column])).sum();
            prop_assert!((sum - best(&weights, &mut vec![false; columns])).abs() < 1e-9);
        }
    }

    #[test]
    fn the_first_choice_is_not_always_best() {
        let weights = [vec![9.0, 8.0], vec![8.0, 1.0]];
        assert_eq!(greatest(&weights), [Some(1), Some(0)]);
        assert_eq!(greatest(&[vec![1.0], vec![2.0]]), [None, Some(0)]);
        assert!(greatest(&[]).is_empty());
    }
}
