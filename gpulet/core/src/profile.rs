//! How long a batch of a model takes on a share of a device: measured, typed in from a paper, synthesised, or predicted.
//! Each profile states its source, and each cell that was predicted its interval.
//!
//! A profile is a table of cells (batch, units), the coefficients of iGniter's analytic model, or both. With both,
//! the cells give the solo time of a batch, and the coefficients its effect on co-located batches. Between cells,
//! time is linear in the batch and in the reciprocal of the units. With the middle one of three adjacent partition
//! sizes left out, this errs by 1.4 % and 1.9 % on the two complete public tables (V100 with TensorRT; PyTorch),
//! compared with 7.6 % and 5.9 % for linear in units. Outside the measured range, the result is [`Outside`].

mod coefficients;
mod file;
mod isotonic;
mod reading;
mod shape;
mod surface;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::coefficients::Coefficients;
pub use self::file::{
    Aggressor, ArenaLine, Cell, ContentionLine, Header, Interval, Line, Source, UtilisationLine, WorkLine,
};
pub(crate) use self::reading::PLANNED;
pub use self::reading::{CELLS_MAX, PROFILES_MAX, ProfileError, UNITS_MAX};
pub use self::shape::{RowShape, SHAPES_MAX, listed as listed_shapes};
use self::surface::Surface;

/// Largest batch in a profile, rows.
pub const BATCH_MAX: u32 = 4_096;

/// Percentile of the measured times that a plan uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantile {
    /// Half of the batches finish within this time.
    P50,
    /// 95 % of the batches finish within this time.
    P95,
    /// 99 % of the batches finish within this time.
    #[default]
    P99,
}

/// A query outside a profile: nothing was measured around that batch and share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "profile of `{model}` on `{device}`: nothing known about batch {batch} on {units} units, expected batch {} to {} and {} to {} units",
    batches.0, batches.1, shares.0, shares.1
)]
pub struct Outside {
    /// Name of the model.
    pub model: String,
    /// Name of the device type.
    pub device: String,
    /// Requested batch size, rows.
    pub batch: u32,
    /// Requested units.
    pub units: u32,
    /// Smallest and largest batch that was measured.
    pub batches: (u32, u32),
    /// Smallest and largest share that was measured.
    pub shares: (u32, u32),
}

/// A cell that contradicted adjacent cells (more rows faster, or more units slower), and the value used instead.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Repair {
    /// Batch size, rows.
    pub batch: u32,
    /// Units of the device.
    pub units: u32,
    /// Percentile that was repaired.
    pub quantile: Quantile,
    /// Value in the file, microseconds.
    pub measured_us: f64,
    /// Value used for planning, microseconds.
    pub used_us: f64,
}

/// Use of a device's shared parts by a batch that runs solo on the whole device, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    /// Bandwidth of the last-level cache.
    pub cache: f64,
    /// Memory bandwidth.
    pub bandwidth: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Times {
    /// Surfaces of p50, p95 and p99.
    Table(Box<[Surface; 3]>),
    Analytic,
}

/// One model on one device type under one engine. Created with [`Profile::read`] or
/// [`Profile::of_lines`].
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    header: Header,
    cells: Vec<Cell>,
    arenas: Vec<ArenaLine>,
    utilisation: Vec<UtilisationLine>,
    contention: Vec<ContentionLine>,
    coefficients: Option<Coefficients>,
    work: Vec<WorkLine>,
    times: Times,
    /// The surfaces with predicted cells as they are expected; `None` if no cell was predicted.
    expected: Option<Box<[Surface; 3]>>,
    repairs: Vec<Repair>,
}

impl Profile {
    /// Returns the model's name.
    pub fn model(&self) -> &str {
        &self.header.model
    }

    /// Returns the device type that it was profiled on.
    pub fn device(&self) -> &str {
        &self.header.device
    }

    /// Returns the profile's description of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the shapes of the inputs that were measured; empty if they are fixed or unknown.
    pub fn shapes(&self) -> &[RowShape] {
        &self.header.shapes
    }

    /// Returns the units of the whole device.
    pub fn units_total(&self) -> u32 {
        self.header.units_total
    }

    /// Returns the coefficients of iGniter's model, if they are known.
    pub fn coefficients(&self) -> Option<&Coefficients> {
        self.coefficients.as_ref()
    }

    /// Returns the work of the model's operators by class; empty if the file does not say it.
    pub fn work(&self) -> &[WorkLine] {
        &self.work
    }

    /// Returns the cells that contradicted others, and the values used instead.
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    /// Returns the microseconds of a solo batch to plan with: for predicted cells, the geometric mean of the expected time and the
    /// upper end of the interval. Never falls as the batch grows, and never rises as the units grow.
    ///
    /// # Errors
    /// [`Outside`] if nothing is known around the batch or the units.
    pub fn latency_us(&self, quantile: Quantile, batch: u32, units: u32) -> Result<f64, Outside> {
        let of_table = match &self.times {
            Times::Table(surfaces) => Some(surfaces.as_ref()),
            Times::Analytic => None,
        };
        self.time_us(of_table, quantile, batch, units)
    }

    /// Returns the microseconds that a solo batch is expected to take: as [`Profile::latency_us`], with predicted cells as they
    /// are expected.
    ///
    /// # Errors
    /// As [`Profile::latency_us`].
    pub fn expected_us(&self, quantile: Quantile, batch: u32, units: u32) -> Result<f64, Outside> {
        match &self.expected {
            Some(expected) => self.time_us(Some(expected), quantile, batch, units),
            None => self.latency_us(quantile, batch, units),
        }
    }

    /// Returns the cells that were predicted and not measured.
    pub fn predicted(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.predicted.is_some())
    }

    /// Returns all cells, by units, then by batch.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the same profile without the doubt about predicted cells, as if they were measured as they are expected.
    #[must_use]
    pub fn without_doubt(mut self) -> Self {
        if let Some(expected) = self.expected.take() {
            self.times = Times::Table(expected);
            for cell in self.cells.iter_mut() {
                cell.count = cell.count.max(1);
                cell.predicted = None;
            }
        }
        self
    }

    fn time_us(
        &self,
        table: Option<&[Surface; 3]>,
        quantile: Quantile,
        batch: u32,
        units: u32,
    ) -> Result<f64, Outside> {
        let found = match (table, &self.coefficients) {
            (Some([p50, p95, p99]), _) => match quantile {
                Quantile::P50 => p50.at(batch, units),
                Quantile::P95 => p95.at(batch, units),
                Quantile::P99 => p99.at(batch, units),
            },
            (None, Some(coefficients)) => {
                let known = (1..=coefficients.batch_max).contains(&batch)
                    && (1..=self.header.units_total).contains(&units);
                known.then(|| self.analytic_us(coefficients, batch, units))
            }
            (None, None) => None,
        };
        found.ok_or_else(|| Outside {
            model: self.header.model.clone(),
            device: self.header.device.clone(),
            batch,
            units,
            batches: self.batches(),
            shares: self.shares(),
        })
    }

    fn analytic_us(&self, coefficients: &Coefficients, batch: u32, units: u32) -> f64 {
        let transfers = self.load_us(batch) + coefficients.fetch_us_per_row * f64::from(batch);
        coefficients.launch_us + coefficients.active_us(batch, self.share_pct(units)) + transfers
    }

    /// Returns the units as a share of the device, percent.
    pub fn share_pct(&self, units: u32) -> f64 {
        100.0 * f64::from(units) / f64::from(self.header.units_total)
    }

    /// Returns the microseconds of a batch's latency during which the device still runs the previous batch, because
    /// the input is being copied in. A gpulet's throughput is batch / (latency - load).
    pub fn load_us(&self, batch: u32) -> f64 {
        self.header.load_us_per_row * f64::from(batch)
    }

    /// Returns the same profile for lanes that hold one batch at a time, where no batch overlaps with the previous
    /// one.
    #[must_use]
    pub fn without_overlap(mut self) -> Self {
        let load_us = std::mem::take(&mut self.header.load_us_per_row);
        if let Some(coefficients) = &mut self.coefficients {
            coefficients.fetch_us_per_row += load_us;
        }
        self
    }

    /// Returns the smallest and largest batch that the profile covers on some share.
    pub fn batches(&self) -> (u32, u32) {
        match (&self.times, &self.coefficients) {
            (Times::Table(surfaces), _) => surfaces.iter().next().map_or((0, 0), Surface::batches),
            (Times::Analytic, Some(coefficients)) => (1, coefficients.batch_max),
            (Times::Analytic, None) => (0, 0),
        }
    }

    /// Returns the smallest and largest share that the profile covers, in units.
    pub fn shares(&self) -> (u32, u32) {
        match &self.times {
            Times::Table(surfaces) => surfaces.iter().next().map_or((0, 0), Surface::shares),
            Times::Analytic => (1, self.header.units_total),
        }
    }

    /// Returns the bytes of weights, once per device, or `None` if they were not measured.
    pub fn weights_bytes(&self) -> Option<u64> {
        self.header.weights_bytes
    }

    /// Returns the bytes that a gpulet needs for batches of that size: those of the next larger measured batch, in
    /// proportion beyond the largest. `None` if no arena was measured.
    pub fn arena_bytes(&self, batch: u32) -> Option<u64> {
        let above = self.arenas.iter().find(|arena| arena.batch >= batch);
        above.map(|arena| arena.bytes).or_else(|| {
            let last = self.arenas.last()?;
            let scaled = u128::from(last.bytes) * u128::from(batch);
            Some(u64::try_from(scaled.div_ceil(u128::from(last.batch.max(1)))).unwrap_or(u64::MAX))
        })
    }

    /// Returns the use of the device's shared parts by batches of that size: linear between measured sizes, constant
    /// beyond.
    pub fn utilisation(&self, batch: u32) -> Option<Utilisation> {
        let after = self.utilisation.partition_point(|line| line.batch < batch);
        let above = self.utilisation.get(after).or(self.utilisation.last())?;
        let below = after.checked_sub(1).and_then(|before| self.utilisation.get(before)).unwrap_or(above);
        let width = f64::from(above.batch.saturating_sub(below.batch));
        let share = if width > 0.0 {
            f64::from(batch.min(above.batch).saturating_sub(below.batch)) / width
        } else {
            0.0
        };
        let between = |from: f64, to: f64| from + (to - from) * share;
        Some(Utilisation {
            cache: between(below.used.cache, above.used.cache),
            bandwidth: between(below.used.bandwidth, above.used.bandwidth),
        })
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
        })
    }
}

#[cfg(test)]
mod tests;
