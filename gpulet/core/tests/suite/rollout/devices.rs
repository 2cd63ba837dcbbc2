//! Emulated devices: what really exists on them, whatever the machine believes, and what really runs.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::plan::Gpulet;
use gpulet_core::rollout::{GpuletId, Step, StepId};

use super::plans::{BASE_BYTES, GPULET_BYTES, arena_bytes, weights_bytes};

/// Requests that run.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    pub workload: String,
    pub requests: Vec<u64>,
}

/// A gpulet that exists.
#[derive(Clone, Debug)]
pub struct Body {
    pub device: String,
    pub first_unit: u32,
    pub units: u32,
    /// Models with the largest batch that they were loaded for.
    pub sessions: BTreeMap<String, u32>,
    pub verified: BTreeSet<String>,
    pub running: Option<Running>,
    pub faulty: bool,
    /// The last step that touched it; what was asked before and ends later has no effect.
    pub last: StepId,
    /// Times that it, or a session of it, could not be closed.
    pub unclosed: u32,
}

impl Body {
    pub fn shares_units(&self, other: &Self) -> bool {
        self.device == other.device
            && self.first_unit < other.first_unit + other.units
            && other.first_unit < self.first_unit + self.units
    }

    pub fn is_fit_for(&self, gpulet: &Gpulet, model_of: impl Fn(&str) -> &'static str) -> bool {
        gpulet.slots.iter().all(|slot| {
            let model = model_of(&slot.workload);
            self.verified.contains(model)
                && self.sessions.get(model).is_some_and(|batch| *batch >= slot.batch)
        })
    }
}

#[derive(Default)]
pub struct Devices {
    pub bodies: BTreeMap<GpuletId, Body>,
    pub memory_bytes: u64,
    pub peak_bytes: u64,
}

impl Devices {
    pub fn used_bytes(&self, device: &str) -> u64 {
        let here = || self.bodies.values().filter(|body| body.device == device);
        let models: BTreeSet<&String> = here().flat_map(|body| body.sessions.keys()).collect();
        let weights: u64 = models.iter().map(|model| weights_bytes(model)).sum();
        let arenas: u64 =
            here().flat_map(|body| body.sessions.values()).map(|batch| arena_bytes(*batch)).sum();
        BASE_BYTES + weights + arenas + GPULET_BYTES * here().count() as u64
    }

    /// A step begins: from now on it takes what it needs.
    pub fn begin(&mut self, id: StepId, step: &Step) {
        let gpulet = step.gpulet();
        match step {
            Step::Open { device, first_unit, units, .. } => {
                let body = Body {
                    device: device.clone(),
                    first_unit: *first_unit,
                    units: *units,
                    sessions: BTreeMap::new(),
                    verified: BTreeSet::new(),
                    running: None,
                    faulty: false,
                    last: id,
                    unclosed: 0,
                };
                assert!(self.bodies.insert(gpulet, body).is_none(), "{gpulet} was opened twice");
            }
            Step::Prepare { model, batch, .. } => {
                let body = self.bodies.get_mut(&gpulet).unwrap();
                let held = body.sessions.entry(model.clone()).or_insert(0);
                *held = (*held).max(*batch);
            }
            Step::Verify { model, batch, .. } => {
                let body = &self.bodies[&gpulet];
                assert!(body.sessions[model] >= *batch, "verified before it was prepared");
            }
            Step::Shrink { .. } | Step::CloseSession { .. } | Step::Close { .. } => {}
        }
        if let Some(body) = self.bodies.get_mut(&gpulet) {
            body.last = id;
            let used = self.used_bytes(&self.bodies[&gpulet].device.clone());
            self.peak_bytes = self.peak_bytes.max(used);
            assert!(used <= self.memory_bytes, "out of memory: {used} of {} at {step:?}", self.memory_bytes);
        }
    }

    /// A step was carried out, unless a later one took its place.
    pub fn complete(&mut self, id: StepId, step: &Step, active: bool) {
        let gpulet = step.gpulet();
        let Some(body) = self.bodies.get_mut(&gpulet).filter(|body| body.last == id) else { return };
        match step {
            Step::Open { .. } | Step::Prepare { .. } => {}
            Step::Verify { model, .. } => drop(body.verified.insert(model.clone())),
            Step::Shrink { model, batch, .. } => drop(body.sessions.insert(model.clone(), *batch)),
            Step::CloseSession { model, .. } => {
                assert!(!active && body.running.is_none(), "{gpulet} is in use while `{model}` is closed");
                body.sessions.remove(model);
                body.verified.remove(model);
            }
            Step::Close { .. } => {
                assert!(!active && body.running.is_none(), "{gpulet} is in use while it is closed");
                assert!(body.sessions.is_empty(), "{gpulet} still has sessions");
                self.bodies.remove(&gpulet);
            }
        }
    }

    /// A step failed and leaves nothing behind.
    pub fn fail(&mut self, id: StepId, step: &Step, before: Option<u32>) {
        let gpulet = step.gpulet();
        let Some(body) = self.bodies.get_mut(&gpulet).filter(|body| body.last == id) else { return };
        match step {
            Step::Open { .. } => drop(self.bodies.remove(&gpulet)),
            Step::Prepare { model, .. } => match before {
                Some(batch) => drop(body.sessions.insert(model.clone(), batch)),
                None => drop(body.sessions.remove(model)),
            },
            Step::CloseSession { .. } | Step::Close { .. } => body.unclosed += 1,
            Step::Verify { .. } | Step::Shrink { .. } => {}
        }
    }

    /// No two gpulets run on one unit.
    pub fn assert_alone(&self, gpulet: GpuletId) {
        let body = &self.bodies[&gpulet];
        for (other, beside) in &self.bodies {
            let runs = *other != gpulet && beside.running.is_some() && beside.shares_units(body);
            assert!(!runs, "{gpulet} and {other} run on the same units");
        }
    }
}
