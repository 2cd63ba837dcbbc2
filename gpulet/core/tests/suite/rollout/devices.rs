//! Emulated devices: what really exists on them, whatever the machine believes, and what really runs.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::plan::Gpulet;
use gpulet_core::rollout::{DeviceId, GpuletId, Step, StepId};
use gpulet_core::warm_pool::{WarmPool, WarmSession};

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
    pub device: DeviceId,
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

pub struct Devices {
    pub bodies: BTreeMap<GpuletId, Body>,
    /// Sessions by device and model that outlived their gpulets.
    pub warm: WarmPool<(DeviceId, String), ()>,
    /// Sessions that were not loaded because there was a warm one.
    pub reused: u64,
    pub memory_bytes: u64,
    pub peak_bytes: u64,
}

impl Devices {
    pub fn new(memory_bytes: u64) -> Self {
        Self { bodies: BTreeMap::new(), warm: WarmPool::new(8), reused: 0, memory_bytes, peak_bytes: 0 }
    }

    /// Plans know nothing of warm sessions, and have all memory that they want.
    fn assert_fits(&mut self, device: &str, step: &Step) {
        let used = self.used_bytes(device) + self.warm.bytes(device);
        self.peak_bytes = self.peak_bytes.max(used);
        assert!(used <= self.memory_bytes, "out of memory: {used} of {} at {step:?}", self.memory_bytes);
    }

    pub fn used_bytes(&self, device: &str) -> u64 {
        let here = || self.bodies.values().filter(|body| body.device == device);
        let models: BTreeSet<&String> = here().flat_map(|body| body.sessions.keys()).collect();
        let weights: u64 = models.iter().map(|model| weights_bytes(model)).sum();
        let arenas: u64 =
            here().flat_map(|body| body.sessions.values()).map(|batch| arena_bytes(*batch)).sum();
        BASE_BYTES + weights + arenas + GPULET_BYTES * here().count() as u64
    }

    /// A step begins: from now on it takes what it needs, of which `free` bytes of its device are left.
    pub fn begin(&mut self, id: StepId, step: &Step, free: u64) {
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
                if !body.sessions.contains_key(model) {
                    let warm = self.warm.take(&(body.device.clone(), model.clone()), *batch);
                    self.reused += u64::from(warm.is_some());
                }
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
            let device = body.device.clone();
            drop(self.warm.shrink_to(&device, free));
            self.assert_fits(&device, step);
        }
    }

    /// A step was carried out, unless a later one took its place.
    pub fn complete(&mut self, id: StepId, step: &Step, active: bool, free: u64) {
        let gpulet = step.gpulet();
        let Some(body) = self.bodies.get_mut(&gpulet).filter(|body| body.last == id) else { return };
        match step {
            Step::Open { .. } | Step::Prepare { .. } => {}
            Step::Verify { model, .. } => drop(body.verified.insert(model.clone())),
            Step::Shrink { model, batch, .. } => drop(body.sessions.insert(model.clone(), *batch)),
            Step::CloseSession { model, .. } => {
                assert!(!active && body.running.is_none(), "{gpulet} is in use while `{model}` is closed");
                let (device, rows) = (body.device.clone(), body.sessions.remove(model));
                body.verified.remove(model);
                if let Some(rows) = rows {
                    let (key, bytes) =
                        ((device.clone(), model.clone()), weights_bytes(model) + arena_bytes(rows));
                    let warm = WarmSession { device: device.clone(), key, rows, bytes, session: () };
                    drop(self.warm.insert(warm));
                    drop(self.warm.shrink_to(&device, free));
                    self.assert_fits(&device, step);
                }
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
        for (other, co_located) in &self.bodies {
            let runs = *other != gpulet && co_located.running.is_some() && co_located.shares_units(body);
            assert!(!runs, "{gpulet} and {other} run on the same units");
        }
    }
}
