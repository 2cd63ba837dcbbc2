//! Checks a plan and records its violations.

use std::collections::{BTreeMap, BTreeSet};

use super::{SlotPrediction, TOLERANCE, Unused, Validation, Violation};
use crate::interference::{Load, Runner};
use crate::plan::{Gpulet, Plan, Slot, Window};
use crate::problem::{Device, Problem, Workload};

/// Validates a plan.
pub fn validate(problem: &Problem, plan: &Plan) -> Validation {
    let devices: BTreeMap<&str, &Device> =
        problem.devices().iter().map(|device| (device.name.as_str(), device)).collect();
    let workloads: BTreeMap<&str, &Workload> =
        problem.workloads().iter().map(|workload| (workload.name.as_str(), workload)).collect();
    let mut validator = Validator { problem, workloads, validation: Validation::default() };
    let mut by_device: BTreeMap<&str, Vec<&Gpulet>> = BTreeMap::new();
    for gpulet in &plan.gpulets {
        by_device.entry(&gpulet.device).or_default().push(gpulet);
    }
    let mut held: Vec<(&Device, Vec<&Gpulet>)> = Vec::new();
    for (name, gpulets) in by_device {
        match devices.get(name) {
            Some(device) => held.push((device, gpulets)),
            None => validator.violate(Violation::UnknownDevice { device: name.into() }),
        }
    }
    for (device, gpulets) in &mut held {
        validator.number(device, gpulets);
    }
    for (device, gpulets) in &held {
        validator.space(device, gpulets);
        validator.memory(device, gpulets);
        for gpulet in gpulets {
            validator.schedule(device, gpulet, gpulets);
        }
        validator.validation.devices_used = validator.validation.devices_used.saturating_add(1);
        validator.validation.cost += device.cost;
        validator.validation.unused.push(unused(device, gpulets));
    }
    validator.served(plan);
    validator.fault_domains(&held);
    validator.validation
}

struct Validator<'a> {
    problem: &'a Problem,
    workloads: BTreeMap<&'a str, &'a Workload>,
    validation: Validation,
}

/// Returns whether two windows overlap at some time. Windows of different periods eventually do.
fn meet(first: Option<Window>, second: Option<Window>) -> bool {
    let (Some(first), Some(second)) = (first, second) else { return true };
    if first.period_us.to_bits() != second.period_us.to_bits() {
        return true;
    }
    let slack = TOLERANCE * first.period_us;
    first.offset_us + slack < second.offset_us + second.length_us
        && second.offset_us + slack < first.offset_us + first.length_us
}

fn above(value: f64, limit: f64) -> bool {
    value.is_nan() || value > limit * (1.0 + TOLERANCE)
}

fn unused(device: &Device, gpulets: &[&Gpulet]) -> Unused {
    let owned = gpulets.iter().map(|gpulet| {
        let time = gpulet.window.map_or(1.0, |window| window.length_us / window.period_us);
        // A malformed window owns nothing.
        if time.is_finite() { f64::from(gpulet.units) * time } else { 0.0 }
    });
    let share = 1.0 - owned.sum::<f64>() / f64::from(device.device_type.units);
    Unused { device: device.name.clone(), share: share.clamp(0.0, 1.0) }
}

impl<'a> Validator<'a> {
    fn violate(&mut self, violation: Violation) {
        self.validation.violations.push(violation);
    }

    /// Gpulets beyond the device's limit are a violation and are not checked further, because plans also come from
    /// files.
    fn number(&mut self, device: &Device, gpulets: &mut Vec<&Gpulet>) {
        let most = device.device_type.gpulets_max;
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        if gpulets.len() > limit {
            let gpulets = gpulets.len();
            self.violate(Violation::TooManyGpulets { device: device.name.clone(), gpulets, most });
        }
        gpulets.truncate(limit);
    }

    fn space(&mut self, device: &Device, gpulets: &[&Gpulet]) {
        let device_type = &device.device_type;
        for (at, gpulet) in gpulets.iter().enumerate() {
            let end = u64::from(gpulet.first_unit) + u64::from(gpulet.units);
            if !device_type.sizes.contains(&gpulet.units) || end > u64::from(device_type.units) {
                self.violate(Violation::IllegalUnits {
                    device: device.name.clone(),
                    first_unit: gpulet.first_unit,
                    units: gpulet.units,
                    legal: device_type.sizes.clone(),
                    total: device_type.units,
                });
            }
            for other in gpulets.iter().skip(at.saturating_add(1)) {
                let other_end = u64::from(other.first_unit) + u64::from(other.units);
                let shared = u64::from(gpulet.first_unit) < other_end && u64::from(other.first_unit) < end;
                if shared && meet(gpulet.window, other.window) {
                    self.violate(Violation::Overlap {
                        device: device.name.clone(),
                        first: gpulet.first_unit,
                        second: other.first_unit,
                    });
                }
            }
        }
    }

    fn memory(&mut self, device: &Device, gpulets: &[&Gpulet]) {
        let mut models: BTreeSet<&str> = BTreeSet::new();
        let mut needed = u128::from(device.device_type.base_bytes);
        for gpulet in gpulets {
            needed += u128::from(device.device_type.gpulet_bytes);
            for slot in &gpulet.slots {
                // `slot` reports what is unknown.
                let Some(workload) = self.workloads.get(slot.workload.as_str()) else { continue };
                let Some(profile) = self.problem.profile(workload, &device.device_type) else { continue };
                let (weights, arena) = (profile.weights_bytes(), profile.arena_bytes(slot.batch));
                if weights.is_none() || arena.is_none() {
                    let unknown = &mut self.validation.memory_unknown;
                    if !unknown.contains(&workload.model) {
                        unknown.push(workload.model.clone());
                    }
                }
                if models.insert(&workload.model) {
                    needed += u128::from(weights.unwrap_or(0));
                }
                needed += u128::from(arena.unwrap_or(0));
            }
        }
        if needed > u128::from(device.memory_bytes) {
            self.violate(Violation::Memory {
                device: device.name.clone(),
                needed: u64::try_from(needed).unwrap_or(u64::MAX),
                has: device.memory_bytes,
            });
        }
    }

    /// Returns what is wrong with the form of a gpulet, independent of its workloads.
    fn form(gpulet: &Gpulet) -> Option<&'static str> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if gpulet.slots.is_empty() {
            return Some("expected at least one slot, got none");
        }
        if gpulet.duty_us.is_none() && gpulet.slots.len() > 1 {
            return Some("expected a cycle (duty_us) for several slots");
        }
        if gpulet.duty_us.is_some_and(|duty| !positive(duty)) {
            return Some("duty_us: expected above 0");
        }
        if gpulet.duty_us.is_some() && gpulet.window.is_some() {
            return Some("expected a cycle or a window, got both");
        }
        let sound = |window: Window| {
            positive(window.period_us)
                && positive(window.length_us)
                && window.offset_us >= 0.0
                && !above(window.offset_us + window.length_us, window.period_us)
                && window
                    .limit_us
                    .is_none_or(|limit| !above(window.length_us, limit) && !above(limit, window.period_us))
        };
        if gpulet.window.is_some_and(|window| !sound(window)) {
            return Some(
                "window: expected 0 <= offset_us, 0 < length_us, both together within period_us, and limit_us from \
                 length_us to period_us",
            );
        }
        let slot = |slot: &Slot| positive(slot.budget_us) && slot.rate >= 0.0 && slot.rate.is_finite();
        (!gpulet.slots.iter().all(slot))
            .then_some("slots: expected a budget_us above 0 and a rate of at least 0")
    }

    fn runner(&self, device: &Device, gpulet: &Gpulet, slot: &Slot) -> Option<Runner<'a>> {
        let workload = self.workloads.get(slot.workload.as_str())?;
        let profile = self.problem.profile(workload, &device.device_type)?;
        profile.knows(slot.batch, gpulet.units).ok()?;
        Some(Runner { profile, batch: slot.batch, units: gpulet.units })
    }

    fn schedule(&mut self, device: &Device, gpulet: &Gpulet, all: &[&Gpulet]) {
        if let Some(problem) = Self::form(gpulet) {
            self.violate(Violation::Malformed {
                device: device.name.clone(),
                first_unit: gpulet.first_unit,
                problem: problem.to_owned(),
            });
            return;
        }
        let others =
            all.iter().filter(|other| !std::ptr::eq(**other, gpulet) && meet(gpulet.window, other.window));
        let co_located: Vec<Vec<Load>> = others
            .map(|other| {
                let runners = other.slots.iter().filter_map(|slot| self.runner(device, other, slot));
                runners.map(|runner| Load::of(&runner)).collect()
            })
            .collect();
        let co_located: Vec<&[Load]> = co_located.iter().map(Vec::as_slice).collect();
        // Batches of others that use the time that this gpulet leaves, and that it waits for.
        let timed = all.iter().filter(|other| !std::ptr::eq(**other, gpulet) && other.window.is_some());
        let other_us = timed.flat_map(|other| &other.slots).map(|slot| slot.budget_us).fold(0.0, f64::max);
        for slot in &gpulet.slots {
            self.slot(device, gpulet, slot, (&co_located, other_us));
        }
        let budgets_us: f64 = gpulet.slots.iter().map(|slot| slot.budget_us).sum();
        if let Some(duty_us) = gpulet.duty_us.filter(|duty| above(budgets_us, *duty)) {
            self.violate(Violation::CycleOverfull {
                device: device.name.clone(),
                first_unit: gpulet.first_unit,
                budgets_us,
                duty_us,
            });
        }
    }

    fn slot(
        &mut self,
        device: &Device,
        gpulet: &Gpulet,
        slot: &Slot,
        (co_located, other_us): (&[&[Load]], f64),
    ) {
        let (workload, on) = (slot.workload.clone(), device.name.clone());
        let Some(wanted) = self.workloads.get(slot.workload.as_str()).copied() else {
            return self.violate(Violation::UnknownWorkload { workload, device: on });
        };
        let Some(profile) = self.problem.profile(wanted, &device.device_type) else {
            let problem = format!("no profile of `{}` on `{}`", wanted.model, device.device_type.name);
            return self.violate(Violation::Unprofiled { workload, device: on, problem });
        };
        let solo_us = match self.problem.solo_us(profile, slot.batch, gpulet.units) {
            Ok(time) => time,
            Err(outside) => {
                return self.violate(Violation::Unprofiled {
                    workload,
                    device: on,
                    problem: outside.to_string(),
                });
            }
        };
        if slot.batch > wanted.batch_max {
            let (batch, most) = (slot.batch, wanted.batch_max);
            self.violate(Violation::BatchTooLarge {
                workload: workload.clone(),
                device: on.clone(),
                batch,
                most,
            });
        }
        let runner = Runner { profile, batch: slot.batch, units: gpulet.units };
        let co_located_us = solo_us * self.problem.interference().slowdown(&runner, co_located);
        let (worst_us, capacity) =
            promise(gpulet, slot, (co_located_us, other_us), profile.load_us(slot.batch));
        if above(co_located_us, slot.budget_us) {
            let budget_us = slot.budget_us;
            let (workload, device) = (workload.clone(), on.clone());
            self.violate(Violation::OverBudget { workload, device, co_located_us, budget_us });
        }
        if above(worst_us, wanted.slo_us) {
            let (workload, device) = (workload.clone(), on.clone());
            self.violate(Violation::TooLate { workload, device, worst_us, slo_us: wanted.slo_us });
        }
        if above(slot.rate, capacity) {
            let (workload, device) = (workload.clone(), on.clone());
            self.violate(Violation::SlotOverloaded { workload, device, rate: slot.rate, capacity });
        }
        self.validation.slots.push(SlotPrediction {
            device: on,
            first_unit: gpulet.first_unit,
            workload,
            solo_us,
            co_located_us,
            worst_us,
            capacity,
            rate: slot.rate,
        });
    }

    fn served(&mut self, plan: &Plan) {
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for slot in plan.gpulets.iter().flat_map(|gpulet| &gpulet.slots) {
            *sums.entry(&slot.workload).or_default() += slot.rate;
        }
        for workload in self.problem.workloads() {
            let served = sums.get(workload.name.as_str()).copied().unwrap_or(0.0);
            if above(workload.wanted(), served) {
                let wanted = workload.wanted();
                self.violate(Violation::Unserved { workload: workload.name.clone(), served, wanted });
            }
        }
    }

    fn fault_domains(&mut self, held: &[(&Device, Vec<&Gpulet>)]) {
        let mut domains: BTreeMap<&str, BTreeMap<&str, &Workload>> = BTreeMap::new();
        for (device, gpulets) in held {
            let domain = domains.entry(&device.fault_domain).or_default();
            let slots = gpulets.iter().flat_map(|gpulet| &gpulet.slots);
            domain.extend(slots.filter_map(|slot| {
                let workload = self.workloads.get(slot.workload.as_str())?;
                Some((workload.name.as_str(), *workload))
            }));
        }
        for (fault_domain, held) in &domains {
            let held: Vec<&&Workload> = held.values().collect();
            for (at, first) in held.iter().enumerate() {
                for second in held.iter().skip(at.saturating_add(1)).filter(|second| first.excludes(second)) {
                    self.validation.violations.push(Violation::Tenants {
                        fault_domain: (*fault_domain).to_owned(),
                        first: first.name.clone(),
                        second: second.name.clone(),
                    });
                }
            }
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in domains.values().flat_map(BTreeMap::keys) {
            let count = counts.entry(name).or_default();
            *count = count.saturating_add(1);
        }
        for workload in self.problem.workloads() {
            let has = counts.get(workload.name.as_str()).copied().unwrap_or(0);
            if u32::try_from(has).is_ok_and(|has| has < workload.replicas_min) {
                let needs = workload.replicas_min;
                self.validation.violations.push(Violation::Replicas {
                    workload: workload.name.clone(),
                    has,
                    needs,
                });
            }
        }
    }
}

/// Returns the worst-case microseconds from arrival to response, and the requests per second that can be served.
/// Batches take `co_located_us`; the previous batch may still run during the first `load_us`. Batches of gpulets that
/// share the units in time take at most `other_us`.
fn promise(gpulet: &Gpulet, slot: &Slot, (co_located_us, other_us): (f64, f64), load_us: f64) -> (f64, f64) {
    let rows = f64::from(slot.batch);
    match (gpulet.duty_us, gpulet.window) {
        (Some(duty_us), _) => (duty_us + co_located_us, 1e6 * rows / duty_us),
        (None, None) => (2.0 * co_located_us, 1e6 * rows / (co_located_us - load_us)),
        (None, Some(Window { period_us, length_us, limit_us, .. })) => {
            // In the worst case, a request waits for another gpulet's batch, or misses an own one, after which no other
            // fits into the window. A gpulet that has used up its limit waits for the rest of the period first.
            let used_up = period_us - limit_us.unwrap_or(period_us);
            let gap = period_us - length_us + 2.0 * co_located_us + co_located_us.max(other_us);
            let batches = (length_us / co_located_us * (1.0 + TOLERANCE)).floor();
            let worst = if batches < 1.0 {
                f64::INFINITY
            } else {
                used_up + gap.min(period_us + co_located_us + other_us)
            };
            (worst, 1e6 * rows * batches / period_us)
        }
    }
}
