//! How long a batch of a model takes on a share of a device, as measured, as typed in from a paper, or as
//! synthesised; profiles say which.
//!
//! A profile is either a table of cells (batch, units) or the coefficients of iGniter's analytic model, or both: then
//! the cells say how long a batch takes alone, and the coefficients what it does to its neighbours. Between cells
//! time is linear in the batch and linear in one over the units: leaving out the middle one of three neighbouring
//! partition sizes, that errs by 1.4 % and 1.9 % on the two complete public tables (V100 with TensorRT; PyTorch),
//! against 7.6 % and 5.9 % for linear in units. Outside the measured hull there is no answer, only [`Outside`].

mod coefficients;
mod file;
mod isotonic;
mod reading;
mod surface;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::coefficients::Coefficients;
pub use self::file::{Aggressor, ArenaLine, Cell, ContentionLine, Header, Line, Source, UtilisationLine};
pub use self::reading::{CELLS_MAX, PROFILES_MAX, ProfileError, UNITS_MAX};
use self::surface::Surface;

/// The largest batch that a profile may speak of, in rows.
pub const BATCH_MAX: u32 = 4_096;

/// Which of the measured times a plan is made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantile {
    /// Half of the batches were done by then.
    P50,
    /// 95 % of the batches were done by then.
    P95,
    /// 99 % of the batches were done by then.
    #[default]
    P99,
}

/// A question that a profile cannot answer: nothing was measured around that batch and share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "profile of `{model}` on `{device}`: nothing known about batch {batch} on {units} units, expected batch {} to {} and {} to {} units",
    batches.0, batches.1, shares.0, shares.1
)]
pub struct Outside {
    /// The model.
    pub model: String,
    /// The device type.
    pub device: String,
    /// Rows asked about.
    pub batch: u32,
    /// Units asked about.
    pub units: u32,
    /// Smallest and largest batch that was measured.
    pub batches: (u32, u32),
    /// Smallest and largest share that was measured.
    pub shares: (u32, u32),
}

/// A cell that contradicted its neighbours (more rows faster, or more units slower), and what is used in its place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Repair {
    /// Rows a batch.
    pub batch: u32,
    /// Units of the device.
    pub units: u32,
    /// Which of the cell's times.
    pub quantile: Quantile,
    /// As it stands in the file, microseconds.
    pub measured_us: f64,
    /// As it is planned with, microseconds.
    pub used_us: f64,
}

/// How much of a device's shared parts a batch of a model uses while it runs alone on all of it, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    /// Of the bandwidth of the last-level cache.
    pub cache: f64,
    /// Of the memory bandwidth.
    pub bandwidth: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Times {
    /// Of p50, p95 and p99.
    Table(Box<[Surface; 3]>),
    Analytic,
}

/// One model on one device type under one engine. Read with [`Profile::read`], or made of its lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    header: Header,
    cells: Vec<Cell>,
    arenas: Vec<ArenaLine>,
    utilisation: Vec<UtilisationLine>,
    contention: Vec<ContentionLine>,
    coefficients: Option<Coefficients>,
    times: Times,
    repairs: Vec<Repair>,
}

impl Profile {
    /// The model's name.
    pub fn model(&self) -> &str {
        &self.header.model
    }

    /// The device type that it was profiled on.
    pub fn device(&self) -> &str {
        &self.header.device
    }

    /// What the profile says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Units of the whole device.
    pub fn units_total(&self) -> u32 {
        self.header.units_total
    }

    /// The coefficients of iGniter's model, where they are known.
    pub fn coefficients(&self) -> Option<&Coefficients> {
        self.coefficients.as_ref()
    }

    /// Cells that were out of order, and what is used in their place.
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    /// Microseconds that a batch takes with nothing beside it: never falls as the batch grows, never rises as the
    /// units grow.
    ///
    /// # Errors
    /// [`Outside`] where nothing was measured around the batch or the units.
    pub fn latency_us(&self, quantile: Quantile, batch: u32, units: u32) -> Result<f64, Outside> {
        let found = match (&self.times, &self.coefficients) {
            (Times::Table(surfaces), _) => {
                let [p50, p95, p99] = surfaces.as_ref();
                match quantile {
                    Quantile::P50 => p50.at(batch, units),
                    Quantile::P95 => p95.at(batch, units),
                    Quantile::P99 => p99.at(batch, units),
                }
            }
            (Times::Analytic, Some(coefficients)) => {
                let known = (1..=coefficients.batch_max).contains(&batch)
                    && (1..=self.header.units_total).contains(&units);
                known.then(|| self.analytic_us(coefficients, batch, units))
            }
            (Times::Analytic, None) => None,
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

    /// Units as a share of the device, percent.
    pub fn share_pct(&self, units: u32) -> f64 {
        100.0 * f64::from(units) / f64::from(self.header.units_total)
    }

    /// Microseconds of a batch's latency during which the device still runs the batch before it: its input is being
    /// copied in. A gpulet's throughput is batch / (latency - load).
    pub fn load_us(&self, batch: u32) -> f64 {
        self.header.load_us_per_row * f64::from(batch)
    }

    /// The same times where nothing of a batch runs beside the one before it: on lanes that hold one batch at a time.
    #[must_use]
    pub fn without_overlap(mut self) -> Self {
        let load_us = std::mem::take(&mut self.header.load_us_per_row);
        if let Some(coefficients) = &mut self.coefficients {
            coefficients.fetch_us_per_row += load_us;
        }
        self
    }

    /// Smallest and largest batch that the profile knows on some share.
    pub fn batches(&self) -> (u32, u32) {
        match (&self.times, &self.coefficients) {
            (Times::Table(surfaces), _) => surfaces.iter().next().map_or((0, 0), Surface::batches),
            (Times::Analytic, Some(coefficients)) => (1, coefficients.batch_max),
            (Times::Analytic, None) => (0, 0),
        }
    }

    /// Smallest and largest share that the profile knows, in units.
    pub fn shares(&self) -> (u32, u32) {
        match &self.times {
            Times::Table(surfaces) => surfaces.iter().next().map_or((0, 0), Surface::shares),
            Times::Analytic => (1, self.header.units_total),
        }
    }

    /// Bytes of weights, once a device; none where they were never measured.
    pub fn weights_bytes(&self) -> Option<u64> {
        self.header.weights_bytes
    }

    /// Bytes that a gpulet needs for batches of that size: those of the next larger batch that was measured, in
    /// proportion beyond the largest; none where no arena was ever measured.
    pub fn arena_bytes(&self, batch: u32) -> Option<u64> {
        let above = self.arenas.iter().find(|arena| arena.batch >= batch);
        above.map(|arena| arena.bytes).or_else(|| {
            let last = self.arenas.last()?;
            let scaled = u128::from(last.bytes) * u128::from(batch);
            Some(u64::try_from(scaled.div_ceil(u128::from(last.batch.max(1)))).unwrap_or(u64::MAX))
        })
    }

    /// Use of the device's shared parts by batches of that size, linear between those measured, constant beyond.
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
