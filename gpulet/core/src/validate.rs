//! The validator of plans. It shares no code with the planners except the profiles and the interference model,
//! because planners overestimate their own plans. About half of the plans that the published gpulet code calls
//! schedulable at tight objectives break them.
//!
//! A batch takes the waiting requests of its slot, up to its size, and does not wait for more. In the worst case, a
//! request just misses a batch. On its own gpulet, it then waits for that batch and its own: 2 L. In a cycle, it
//! waits for the next run of its slot: d + L. In a recurring window, it waits for the next window. The requests that
//! arrive while it waits must fit into the batch: r L <= b, r d <= b, or r P <= b times the batches in a window. L is
//! the predicted time under the worst contention.

mod validator;
mod violation;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::id::DeviceId;
use crate::problem::{Problem, Workload};

pub use self::validator::validate;
pub use self::violation::Violation;

/// Relative tolerance for sums of floating-point numbers.
pub(crate) const TOLERANCE: f64 = 1e-9;

/// Predictions for one slot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlotPrediction {
    /// Name of the device.
    pub device: DeviceId,
    /// First unit of the gpulet.
    pub first_unit: u32,
    /// Name of the workload.
    pub workload: String,
    /// Microseconds of a full batch, solo.
    pub solo_us: f64,
    /// Microseconds of a full batch under the worst contention.
    pub co_located_us: f64,
    /// Worst-case microseconds from arrival to response.
    pub worst_us: f64,
    /// Requests per second that the slot can serve.
    pub capacity: f64,
    /// Requests per second that the plan sends there.
    pub rate: f64,
}

/// Capacity of a used device that no gpulet owns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unused {
    /// Name of the device.
    pub device: DeviceId,
    /// Fraction of its units, over time, from 0 to 1. A gpulet with a window owns its units during the window.
    pub share: f64,
}

/// Violations of a plan, and predictions for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Validation {
    /// Violations; empty for a sound plan.
    pub violations: Vec<Violation>,
    /// Predictions for every slot whose workload and device exist, in the plan's order.
    pub slots: Vec<SlotPrediction>,
    /// Number of devices that run something.
    pub devices_used: usize,
    /// Sum of the costs of these devices.
    pub cost: f64,
    /// What the gpulets of each used device leave over.
    pub unused: Vec<Unused>,
    /// Models whose memory was not measured and could not be checked.
    pub memory_unknown: Vec<String>,
}

impl Validation {
    /// Returns whether the plan has no violations.
    pub fn is_sound(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns the ratio of capacity to rate of each workload with load: the factor by which its rate may grow before
    /// the plan no longer serves it.
    pub fn headrooms<'a>(&self, problem: &'a Problem) -> BTreeMap<&'a str, f64> {
        let mut capacities: BTreeMap<&str, f64> = BTreeMap::new();
        for slot in &self.slots {
            *capacities.entry(&slot.workload).or_default() += slot.capacity;
        }
        let loaded = problem.workloads().iter().filter(|workload| workload.rate > 0.0);
        let ratio = |workload: &'a Workload| {
            let capacity = capacities.get(workload.name.as_str()).copied().unwrap_or(0.0);
            (workload.name.as_str(), capacity / workload.rate)
        };
        loaded.map(ratio).collect()
    }

    /// Returns the smallest of the [`headrooms`](Self::headrooms): the factor by which all rates may grow together until the
    /// plan fails to serve one of them. Returns `None` if there is no load.
    pub fn headroom(&self, problem: &Problem) -> Option<f64> {
        self.headrooms(problem).into_values().reduce(f64::min)
    }
}
