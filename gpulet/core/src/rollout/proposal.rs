//! A plan with the memory that its gpulets take and the limits of the devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::DeviceId;
use crate::plan::{Gpulet, Plan, Window};
use crate::problem::Problem;
use crate::validate::{Violation, validate};

/// Largest number of gpulets in a plan.
pub const GPULETS_MAX: usize = 65_536;

/// A plan that cannot be carried out on these devices.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProposalError {
    /// More gpulets than any plan may have.
    #[error("gpulets: expected at most {GPULETS_MAX}, got {0}")]
    TooMany(usize),
    /// The validator found a violation that makes the plan impossible, not merely late.
    #[error(transparent)]
    Impossible(Box<Violation>),
}

/// What a session takes on its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Rows of the largest batch that it is prepared for.
    pub batch: u32,
    /// Bytes of its arena.
    pub arena_bytes: u64,
    /// Bytes of the model's weights, once a device.
    pub weights_bytes: u64,
}

impl Footprint {
    /// The larger of both, field by field.
    pub fn or(self, other: Self) -> Self {
        Self {
            batch: self.batch.max(other.batch),
            arena_bytes: self.arena_bytes.max(other.arena_bytes),
            weights_bytes: self.weights_bytes.max(other.weights_bytes),
        }
    }
}

/// A gpulet of a plan with what it takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SizedGpulet {
    pub gpulet: Gpulet,
    /// Bytes of the gpulet without weights and arenas.
    pub own_bytes: u64,
    /// By model.
    pub sessions: BTreeMap<String, Footprint>,
}

/// Where a gpulet is: device, first unit, units.
pub(super) type Place<'a> = (&'a str, u32, u32);

impl SizedGpulet {
    pub fn place(&self) -> Place<'_> {
        (&self.gpulet.device, self.gpulet.first_unit, self.gpulet.units)
    }

    pub fn has_models_of(&self, other: &Self) -> bool {
        self.sessions.keys().eq(other.sessions.keys())
    }
}

/// Whether two gpulets have a unit in common.
pub(super) fn share_units(one: &Gpulet, other: &Gpulet) -> bool {
    one.device == other.device
        && one.first_unit < other.first_unit.saturating_add(other.units)
        && other.first_unit < one.first_unit.saturating_add(one.units)
}

/// Whether two gpulets may not be active together: they own a unit at the same time.
pub(super) fn collide(one: &Gpulet, other: &Gpulet) -> bool {
    share_units(one, other) && windows_meet(one.window, other.window)
}

fn windows_meet(one: Option<Window>, other: Option<Window>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    if one.period_us.to_bits() != other.period_us.to_bits() {
        return true;
    }
    // Adjacent ends may differ in the last digits, because planners add windows up.
    let slack = crate::validate::TOLERANCE * one.period_us;
    one.offset_us + slack < other.offset_us + other.length_us
        && other.offset_us + slack < one.offset_us + one.length_us
}

/// Limits of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceLimits {
    /// Bytes for gpulets: memory that may be planned with, less what the device takes for itself.
    pub bytes: u64,
    /// Gpulets that may be active at once.
    pub gpulets: usize,
}

/// A plan that can be carried out, with the memory that it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    pub(super) gpulets: Vec<Arc<SizedGpulet>>,
    pub(super) limits: BTreeMap<DeviceId, DeviceLimits>,
}

fn is_impossible(violation: &Violation) -> bool {
    match violation {
        Violation::UnknownDevice { .. }
        | Violation::UnknownWorkload { .. }
        | Violation::Unprofiled { .. }
        | Violation::IllegalUnits { .. }
        | Violation::Overlap { .. }
        | Violation::TooManyGpulets { .. }
        | Violation::Malformed { .. }
        | Violation::Memory { .. } => true,
        Violation::OverBudget { .. }
        | Violation::CycleOverfull { .. }
        | Violation::TooLate { .. }
        | Violation::SlotOverloaded { .. }
        | Violation::BatchTooLarge { .. }
        | Violation::Unserved { .. }
        | Violation::Tenants { .. }
        | Violation::Replicas { .. } => false,
    }
}

impl Proposal {
    /// Computes the memory of a plan from the profiles of a problem. Unmeasured memory counts as 0. A plan that is late
    /// or serves too little is accepted: it may still be better than the one in force, and the planner decides that.
    ///
    /// # Errors
    /// [`ProposalError`] for a plan that cannot be carried out: devices, workloads or batches that the problem does
    /// not know, units that a device does not give, gpulets that overlap or are malformed, more gpulets or memory
    /// than a device has.
    pub fn new(plan: &Plan, problem: &Problem) -> Result<Self, ProposalError> {
        if plan.gpulets.len() > GPULETS_MAX {
            return Err(ProposalError::TooMany(plan.gpulets.len()));
        }
        if let Some(violation) = validate(problem, plan).violations.into_iter().find(is_impossible) {
            return Err(ProposalError::Impossible(Box::new(violation)));
        }
        let mut limits = BTreeMap::new();
        for device in problem.devices() {
            let bytes = device.memory_bytes.saturating_sub(device.device_type.base_bytes);
            let gpulets = usize::try_from(device.device_type.gpulets_max).unwrap_or(usize::MAX);
            limits.insert(device.name.clone(), DeviceLimits { bytes, gpulets });
        }
        let kinds: BTreeMap<_, _> =
            problem.devices().iter().map(|device| (device.name.as_str(), &device.device_type)).collect();
        let workloads: BTreeMap<_, _> =
            problem.workloads().iter().map(|workload| (workload.name.as_str(), workload)).collect();
        let weigh = |gpulet: &Gpulet| {
            let kind = kinds.get(gpulet.device.as_str());
            let mut sessions: BTreeMap<String, Footprint> = BTreeMap::new();
            for slot in &gpulet.slots {
                let workload = workloads.get(slot.workload.as_str());
                let profile = workload.zip(kind).and_then(|(workload, kind)| problem.profile(workload, kind));
                // The validator found neither an unknown device or workload nor a slot without a profile.
                let Some((workload, profile)) = workload.zip(profile) else {
                    invariant::violated!("rollout.slot_without_profile");
                    continue;
                };
                let need = Footprint {
                    batch: slot.batch,
                    arena_bytes: profile.arena_bytes(slot.batch).unwrap_or(0),
                    weights_bytes: profile.weights_bytes().unwrap_or(0),
                };
                let session = sessions.entry(workload.model.clone()).or_default();
                *session = session.or(need);
            }
            let own_bytes = kind.map_or(0, |kind| kind.gpulet_bytes);
            Arc::new(SizedGpulet { gpulet: gpulet.clone(), own_bytes, sessions })
        };
        Ok(Self { gpulets: plan.gpulets.iter().map(weigh).collect(), limits })
    }

    /// The plan.
    pub fn plan(&self) -> Plan {
        Plan::new(self.gpulets.iter().map(|sized| sized.gpulet.clone()).collect())
    }

    /// Whether it has a gpulet on the device.
    pub fn uses(&self, device: &DeviceId) -> bool {
        self.gpulets.iter().any(|sized| sized.gpulet.device == *device)
    }
}

/// Requests a second by workload.
pub(super) fn served<'a>(gpulets: impl Iterator<Item = &'a SizedGpulet>) -> BTreeMap<String, f64> {
    let mut rates: BTreeMap<String, f64> = BTreeMap::new();
    for slot in gpulets.flat_map(|sized| &sized.gpulet.slots) {
        match rates.get_mut(&slot.workload) {
            Some(rate) => *rate += slot.rate,
            None => drop(rates.insert(slot.workload.clone(), slot.rate)),
        }
    }
    rates
}
