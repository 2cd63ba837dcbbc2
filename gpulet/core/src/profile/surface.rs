//! Times over batch and units: linear in the batch, and linear in the reciprocal of the units.

use std::collections::{BTreeMap, BTreeSet};

use super::isotonic;

/// Weight of a grid point that was not measured but lies between two measured points.
const BETWEEN: f64 = 1e-3;

/// One share and its times by batch, ascending.
#[derive(Clone, Debug, PartialEq)]
struct Column {
    units: u32,
    times: Vec<(u32, f64)>,
}

impl Column {
    fn at(&self, batch: u32) -> Option<f64> {
        let after = self.times.partition_point(|(rows, _)| *rows < batch);
        let (rows, time) = *self.times.get(after)?;
        if rows == batch {
            return Some(time);
        }
        let (before, low) = *self.times.get(after.checked_sub(1)?)?;
        Some(low + (time - low) * f64::from(batch - before) / f64::from(rows - before))
    }
}

/// Times of one quantile; monotone in the batch and in the units.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Surface {
    /// Shares, ascending by units.
    columns: Vec<Column>,
}

impl Surface {
    /// Builds a surface from measured times and the weights of their cells, keyed by (units, batch).
    pub(super) fn new(cells: &BTreeMap<(u32, u32), (f64, f64)>) -> Self {
        let batches: BTreeSet<u32> = cells.keys().map(|(_, batch)| *batch).collect();
        let mut columns: Vec<Column> = Vec::new();
        for (&(units, batch), &(time, _)) in cells {
            match columns.last_mut().filter(|column| column.units == units) {
                Some(column) => column.times.push((batch, time)),
                None => columns.push(Column { units, times: vec![(batch, time)] }),
            }
        }
        let point = |column: &Column, batch: u32| {
            let time = column.at(batch)?;
            Some((time, cells.get(&(column.units, batch)).map_or(BETWEEN, |(_, weight)| *weight)))
        };
        let row = |column: &Column| batches.iter().map(|batch| point(column, *batch)).collect();
        let fitted = isotonic::repair(&columns.iter().map(row).collect::<Vec<_>>());
        let columns = columns.iter().zip(fitted).map(|(column, times)| Column {
            units: column.units,
            times: batches.iter().zip(times).filter_map(|(batch, point)| Some((*batch, point?.0))).collect(),
        });
        Self { columns: columns.collect() }
    }

    pub(super) fn at(&self, batch: u32, units: u32) -> Option<f64> {
        let after = self.columns.partition_point(|column| column.units < units);
        let above = self.columns.get(after)?;
        if above.units == units {
            return above.at(batch);
        }
        let below = self.columns.get(after.checked_sub(1)?)?;
        let inverse = |units: u32| 1.0 / f64::from(units);
        let share = (inverse(units) - inverse(below.units)) / (inverse(above.units) - inverse(below.units));
        let (low, high) = (below.at(batch)?, above.at(batch)?);
        Some(low + (high - low) * share)
    }

    pub(super) fn batches(&self) -> (u32, u32) {
        let batches = || self.columns.iter().flat_map(|column| &column.times).map(|(batch, _)| *batch);
        (batches().min().unwrap_or(0), batches().max().unwrap_or(0))
    }

    pub(super) fn shares(&self) -> (u32, u32) {
        (
            self.columns.first().map_or(0, |column| column.units),
            self.columns.last().map_or(0, |column| column.units),
        )
    }
}
