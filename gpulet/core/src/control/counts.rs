//! What the control loop is told of models and batches: counters at one moment.

use super::Model;
use crate::id::{GpuletId, ModelId};
use crate::time::Micros;

/// A model and its counters at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLoad {
    /// The model.
    pub model: Model,
    /// Its counters.
    pub seen: ModelCounts,
}

/// Outcomes of a model's requests since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows of the answered requests.
    pub rows: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Answered requests that missed their deadline.
    pub late: u64,
    /// Requests that ended without a result.
    pub failed: u64,
}

/// The counters of a model at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// Number of the loaded model. A reloaded version has another number, and its counts start at 0.
    pub number: ModelId,
    /// Outcomes of its requests so far.
    pub counts: Counts,
    /// Requests that wait for a lane.
    pub queued: u64,
    /// Requests that run.
    pub in_flight: u64,
    /// Requests that wait for the model to have a place at all.
    pub waiting: u64,
}

impl ModelCounts {
    /// Requests that wait for a lane or run.
    pub(super) fn unfinished(&self) -> u64 {
        self.queued.saturating_add(self.in_flight)
    }
}

/// Totals of the batches of one size that a gpulet ran of a model, including those of gpulets that it replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTotals {
    /// The gpulet that ran them.
    pub gpulet: GpuletId,
    /// Number of the model, as in [`super::ModelCounts`].
    pub number: ModelId,
    /// Rows per batch.
    pub rows: u32,
    /// Number of batches.
    pub batches: u64,
    /// Total time of the batches.
    pub time_us: Micros,
}
