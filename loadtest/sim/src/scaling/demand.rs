//! How many requests come in each tick.

use workload::{Arrivals, Extent, Workload};

use super::StudyError;

/// Ticks times models that are held at most: 1.6 GB.
const CELLS_MAX: usize = 400_000_000;

/// Requests of each model in each tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    tick_us: u64,
    models: usize,
    counts: Vec<u32>,
}

impl Demand {
    /// Counts the arrivals of a workload, tick by tick.
    ///
    /// # Errors
    /// [`StudyError::Setting`] for a workload that ends by count, or has more ticks than are held.
    pub fn of(workload: &Workload, tick_us: u64) -> Result<Self, StudyError> {
        let fault =
            |field: &str, problem: String| Err(StudyError::Setting { field: field.to_owned(), problem });
        let Extent::Time(duration) = workload.extent else {
            return fault("duration", format!("expected `{}` to end by time, not by count", workload.name));
        };
        let tick = tick_us.max(1).saturating_mul(1_000);
        let ticks = usize::try_from(duration / tick).unwrap_or(usize::MAX);
        let models = workload.models.len();
        let cells = ticks.saturating_mul(models);
        if cells == 0 || cells > CELLS_MAX {
            return fault("duration", format!("expected 1 to {CELLS_MAX} ticks times models, got {cells}"));
        }
        let mut counts = vec![0_u32; cells];
        for offered in Arrivals::new(workload) {
            let at = usize::try_from(offered.at / tick).unwrap_or(usize::MAX);
            let cell = at.saturating_mul(models).saturating_add(offered.model as usize);
            // A last tick that is cut short is left out.
            if let Some(count) = counts.get_mut(cell) {
                *count = count.saturating_add(1);
            }
        }
        Ok(Self { tick_us: tick_us.max(1), models, counts })
    }

    /// From counts, tick after tick, those of all models together; what is no whole tick is left out.
    pub fn from_counts(tick_us: u64, models: usize, counts: Vec<u32>) -> Self {
        Self { tick_us: tick_us.max(1), models: models.max(1), counts }
    }

    /// Microseconds of a tick.
    pub fn tick_us(&self) -> u64 {
        self.tick_us
    }

    /// Models.
    pub fn models(&self) -> usize {
        self.models
    }

    /// Ticks.
    pub fn ticks(&self) -> usize {
        self.counts.len() / self.models
    }

    /// Requests of each model, tick by tick.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.counts.chunks_exact(self.models)
    }

    /// Requests of each model, tick by tick, cut into windows of so many ticks; the last may be shorter.
    pub fn windows(&self, ticks: usize) -> impl Iterator<Item = &[u32]> {
        let whole = self.ticks() * self.models;
        self.counts.get(..whole).unwrap_or(&[]).chunks(ticks.max(1) * self.models)
    }
}
