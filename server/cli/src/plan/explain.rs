//! Explains the share of each workload: what the validator reports for smaller shares.
//!
//! The explanation does not use the planner. It makes one gpulet smaller, with everything else on the device unchanged,
//! until the validator reports a violation. That violation is the limit.

use gpulet_core::id::DeviceId;
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::{Device, Problem, Workload};
use gpulet_core::profile::Profile;
use gpulet_core::validate::{SlotPrediction, Validation, validate};
use serde::Serialize;

use super::reading::PlanQuery;

/// Relative tolerance for sums of floating-point numbers.
const SLACK: f64 = 1e-9;

/// The limit that prevents a smaller share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// No batch meets the objective.
    Time,
    /// No batch that meets the objective serves the rate.
    Rate,
    /// The required batch does not fit into the device's memory.
    Memory,
    /// The batches of all workloads in the gpulet take longer than its cycle.
    TimeSlices,
    /// The profile does not cover smaller shares.
    Profile,
    /// The device has no smaller share.
    Smallest,
}

/// A share that does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attempt {
    /// Size of the share in units of the device.
    pub units: u32,
    /// Rows of the batch that comes closest.
    pub batch: u32,
    /// Microseconds of that batch under contention.
    pub co_located_us: f64,
    /// Worst-case microseconds from arrival to response.
    pub worst_us: f64,
    /// Requests per second that it would serve.
    pub capacity: f64,
}

/// One slot, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    pub workload: String,
    pub device: DeviceId,
    pub first_unit: u32,
    pub units: u32,
    pub units_total: u32,
    /// Maximum rows of a batch.
    pub batch: u32,
    /// Other workloads that share the gpulet by time.
    pub shares_time_with: Vec<String>,
    /// Workloads on other gpulets of the device.
    pub co_located: Vec<String>,
    /// What the validator predicts.
    pub predicted: SlotPrediction,
    /// The objective in microseconds.
    pub slo_us: f64,
    /// The fewest units that suffice; `None` if the planned ones do not.
    pub units_least: Option<u32>,
    /// The fewest units that would suffice alone on the device; `None` if the planned ones would not.
    pub units_least_alone: Option<u32>,
    /// Why fewer units do not suffice.
    pub binds: Binding,
    /// The next smaller share, if the device has one and the profile covers it.
    pub below: Option<Attempt>,
}

/// Explains every slot of a plan, in the order of the problem's workloads.
pub fn explain(query: &PlanQuery, plan: &Plan) -> Vec<Explained> {
    let mut explained = Vec::new();
    for device in query.problem.devices() {
        let gpulets: Vec<Gpulet> =
            plan.gpulets.iter().filter(|gpulet| gpulet.device == device.name).cloned().collect();
        if let Some(bench) = Bench::new(query, device, gpulets) {
            explained.extend(bench.explain());
        }
    }
    let place = |name: &str| query.problem.workloads().iter().position(|known| known.name == name);
    explained.sort_by_key(|explained| place(&explained.workload));
    explained
}

/// One device with its gpulets, to try other shares.
struct Bench<'a> {
    device: &'a Device,
    problem: Problem,
    gpulets: Vec<Gpulet>,
    validation: Validation,
}

/// The result of trying a smaller share.
struct Trial {
    /// The limit that it exceeds; `None` if it suffices.
    lacks: Option<Binding>,
    attempt: Option<Attempt>,
}

impl<'a> Bench<'a> {
    /// Returns `None` for a device without gpulets, or with one that the validator cannot predict.
    fn new(query: &PlanQuery, device: &'a Device, gpulets: Vec<Gpulet>) -> Option<Self> {
        let runs = |workload: &&Workload| {
            gpulets.iter().flat_map(|gpulet| &gpulet.slots).any(|slot| slot.workload == workload.name)
        };
        let workloads: Vec<Workload> = query.problem.workloads().iter().filter(runs).cloned().collect();
        let known = |profile: &&Profile| {
            profile.device() == device.device_type.name
                && workloads.iter().any(|workload| workload.model == profile.model())
        };
        let profiles = query.profiles.iter().filter(known).cloned().collect();
        let interference = query.problem.interference().clone();
        let problem = Problem::new(vec![device.clone()], workloads, profiles, interference).ok()?;
        let problem = problem.at_quantile(query.quantile);
        let validation = validate(&problem, &Plan { gpulets: gpulets.clone() });
        let slots = gpulets.iter().map(|gpulet| gpulet.slots.len()).sum::<usize>();
        (slots > 0 && validation.slots.len() == slots).then_some(Self {
            device,
            problem,
            gpulets,
            validation,
        })
    }

    fn workload(&self, name: &str) -> Option<&Workload> {
        self.problem.workloads().iter().find(|workload| workload.name == name)
    }

    fn explain(&self) -> Vec<Explained> {
        let places = self.gpulets.iter().enumerate();
        let places = places.flat_map(|(at, gpulet)| (0..gpulet.slots.len()).map(move |slot| (at, slot)));
        let explained = places.zip(&self.validation.slots);
        explained.filter_map(|((at, slot), predicted)| self.explain_slot(at, slot, predicted)).collect()
    }

    fn explain_slot(&self, at: usize, slot: usize, predicted: &SlotPrediction) -> Option<Explained> {
        let gpulet = self.gpulets.get(at)?;
        let own = gpulet.slots.get(slot)?;
        let workload = self.workload(&own.workload)?;
        let sizes = &self.device.device_type.sizes;
        let to = sizes.partition_point(|size| *size <= gpulet.units);
        let upto = sizes.get(..to)?;
        let fails = |units: u32, alone: bool| self.trial(at, slot, units, alone).lacks.is_some();
        let first = upto.partition_point(|units| fails(*units, false));
        let below = match first.checked_sub(1).and_then(|before| upto.get(before)) {
            Some(units) => self.trial(at, slot, *units, false),
            None => Trial { lacks: Some(Binding::Smallest), attempt: None },
        };
        let alone = upto.get(upto.partition_point(|units| fails(*units, true)));
        let names = |gpulets: &mut dyn Iterator<Item = &Gpulet>| {
            let mut names: Vec<String> = Vec::new();
            for slot in gpulets.flat_map(|gpulet| &gpulet.slots) {
                if slot.workload != own.workload && !names.contains(&slot.workload) {
                    names.push(slot.workload.clone());
                }
            }
            names
        };
        let others = self.gpulets.iter().enumerate().filter(|(other, _)| *other != at);
        Some(Explained {
            workload: own.workload.clone(),
            device: gpulet.device.clone(),
            first_unit: gpulet.first_unit,
            units: gpulet.units,
            units_total: self.device.device_type.units,
            batch: own.batch,
            shares_time_with: names(&mut std::iter::once(gpulet)),
            co_located: names(&mut others.map(|(_, gpulet)| gpulet)),
            predicted: predicted.clone(),
            slo_us: workload.slo_us,
            units_least: upto.get(first).copied(),
            units_least_alone: alone.copied(),
            binds: below.lacks.unwrap_or(Binding::Smallest),
            below: below.attempt,
        })
    }

    /// What the validator reports for a slot whose gpulet has `units` units. A gpulet without cycle or window may also
    /// use another batch size. With a cycle or window, the batch size stays as planned.
    fn trial(&self, at: usize, slot: usize, units: u32, alone: bool) -> Trial {
        let unknown = Trial { lacks: Some(Binding::Profile), attempt: None };
        let Some(gpulet) = self.gpulets.get(at) else { return unknown };
        let Some(own) = gpulet.slots.get(slot) else { return unknown };
        let Some(workload) = self.workload(&own.workload) else { return unknown };
        let Some(profile) = self.problem.profile(workload, &self.device.device_type) else { return unknown };
        let dedicated = gpulet.duty_us.is_none() && gpulet.window.is_none();
        let batches =
            if dedicated { 1..=workload.batch_max.min(profile.batches().1) } else { own.batch..=own.batch };
        let (mut closest, mut late, mut crowded) = (None, None, None);
        for batch in batches {
            let Some((attempt, total_us, fits)) = self.attempt((at, slot), (units, batch), alone) else {
                continue;
            };
            if attempt.worst_us > workload.slo_us * (1.0 + SLACK) {
                late = Some(attempt);
                break;
            }
            if gpulet.duty_us.is_some_and(|duty| total_us > duty * (1.0 + SLACK)) {
                return Trial { lacks: Some(Binding::TimeSlices), attempt: Some(attempt) };
            }
            let serves = attempt.capacity >= own.rate * (1.0 - SLACK);
            match (serves, fits) {
                (true, true) => return Trial { lacks: None, attempt: Some(attempt) },
                (_, false) => crowded = crowded.or(serves.then_some(attempt)),
                (false, true) => {
                    let better = |best: &Attempt| attempt.capacity > best.capacity;
                    closest = if closest.as_ref().is_none_or(better) { Some(attempt) } else { closest };
                }
            }
        }
        let found = [(Binding::Memory, crowded), (Binding::Rate, closest), (Binding::Time, late)];
        let found = found.into_iter().find_map(|(lacks, attempt)| Some((lacks, attempt?)));
        found.map_or(unknown, |(lacks, attempt)| Trial { lacks: Some(lacks), attempt: Some(attempt) })
    }

    /// The validator's prediction for other units and another batch, the time of one batch of each slot of the gpulet,
    /// and whether the device's memory suffices; `None` if the profile does not cover them.
    fn attempt(
        &self,
        (at, slot): (usize, usize),
        (units, batch): (u32, u32),
        alone: bool,
    ) -> Option<(Attempt, f64, bool)> {
        let mut changed = self.gpulets.get(at)?.clone();
        changed.units = units;
        changed.slots.get_mut(slot)?.batch = batch;
        let slots = changed.slots.len();
        let (gpulets, first) = if alone {
            (vec![changed], 0)
        } else {
            let mut gpulets = self.gpulets.clone();
            *gpulets.get_mut(at)? = changed;
            (gpulets, self.gpulets.iter().take(at).map(|gpulet| gpulet.slots.len()).sum())
        };
        let wanted: usize = gpulets.iter().map(|gpulet| gpulet.slots.len()).sum();
        let validation = validate(&self.problem, &Plan { gpulets });
        if validation.slots.len() != wanted {
            return None;
        }
        let own = validation.slots.iter().skip(first).take(slots);
        let total_us = own.clone().map(|slot| slot.co_located_us).sum();
        let found = own.clone().nth(slot)?;
        let crowded = validation.violations.iter();
        let crowded = crowded
            .filter(|violation| matches!(violation, gpulet_core::validate::Violation::Memory { .. }))
            .count();
        let attempt = Attempt {
            units,
            batch,
            co_located_us: found.co_located_us,
            worst_us: found.worst_us,
            capacity: found.capacity,
        };
        Some((attempt, total_us, crowded == 0))
    }
}
