//! The judge of plans. It shares no code with the planners but the profiles and the interference model, for a
//! planner's own word that its plan meets the objectives has proved worth little: of the plans that the published
//! gpulet code calls schedulable at tight objectives, about half break them.
//!
//! What is promised of a lane: a batch that has its turn takes what waits, up to its size, and does not wait for
//! more. So the worst that can happen to a request is to just miss a batch. Alone on a gpulet it then waits for that
//! batch and its own, 2 L; in a cycle for its next turn, d + L; in a window that recurs, for the next one. And what
//! arrives meanwhile must fit into the batch: r L <= b, r d <= b, or r P <= b times the batches in a window. L is
//! the predicted time beside the worst that the neighbours ever run.

mod validator;
mod violation;

use std::collections::BTreeMap;

use serde::Serialize;

pub use self::validator::validate;
pub use self::violation::Violation;

/// How far a sum of floating-point numbers may be beyond a limit, as a part of it.
pub(crate) const TOLERANCE: f64 = 1e-9;

/// What is predicted of one slot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlotPrediction {
    /// Name of the device.
    pub device: String,
    /// First unit of the gpulet.
    pub first_unit: u32,
    /// Name of the workload.
    pub workload: String,
    /// Microseconds of a full batch with nothing beside it.
    pub solo_us: f64,
    /// Microseconds of a full batch beside the worst that the neighbours run.
    pub co_located_us: f64,
    /// Microseconds from arrival to answer at worst.
    pub worst_us: f64,
    /// Requests a second that the slot can serve.
    pub capacity: f64,
    /// Requests a second that the plan sends there.
    pub rate: f64,
}

/// Everything that is wrong with a plan, and what is predicted of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Validation {
    /// Empty for a sound plan.
    pub violations: Vec<Violation>,
    /// Of every slot whose workload and device exist, in the plan's order.
    pub slots: Vec<SlotPrediction>,
    /// Devices that run something.
    pub devices_used: usize,
    /// Sum of their costs.
    pub cost: f64,
    /// Models whose memory was never measured, so that nothing could be said about it.
    pub memory_unknown: Vec<String>,
}

impl Validation {
    /// Whether the plan holds all that was asked for.
    pub fn is_sound(&self) -> bool {
        self.violations.is_empty()
    }

    /// The smallest capacity over wanted rate of all workloads with load: how much all rates may grow together
    /// before one is no longer served. None without load.
    pub fn headroom(&self, problem: &crate::problem::Problem) -> Option<f64> {
        let mut capacities: BTreeMap<&str, f64> = BTreeMap::new();
        for slot in &self.slots {
            *capacities.entry(&slot.workload).or_default() += slot.capacity;
        }
        let loaded = problem.workloads().iter().filter(|workload| workload.rate > 0.0);
        let room = loaded
            .map(|workload| capacities.get(workload.name.as_str()).copied().unwrap_or(0.0) / workload.rate);
        room.reduce(f64::min)
    }
}
