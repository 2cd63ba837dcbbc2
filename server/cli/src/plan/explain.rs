//! Why each workload has the share that it has: what the judge says of smaller ones.
//!
//! Nothing here is taken from the planner. A gpulet is made smaller, with all else on its device as it is, until the
//! judge objects; what it objects to is what binds.

use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::{Device, Problem, Workload};
use gpulet_core::profile::Profile;
use gpulet_core::validate::{SlotPrediction, Validation, validate};
use serde::Serialize;

use super::reading::Question;

/// Part of a limit that a sum of floating-point numbers may be beyond it.
const SLACK: f64 = 1e-9;

/// What keeps a share from being smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// No batch would be answered in time.
    Time,
    /// No batch that is answered in time would serve the rate.
    Rate,
    /// The batch that would be needed does not fit into the device's memory.
    Memory,
    /// The turns of all who share the gpulet would not fit into its cycle.
    Turns,
    /// Nothing is known about smaller shares.
    Profile,
    /// The device gives no smaller share.
    Smallest,
}

/// A share that does not do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attempt {
    /// Units.
    pub units: u32,
    /// The batch that comes closest, rows.
    pub batch: u32,
    /// Microseconds of that batch beside the neighbours.
    pub co_located_us: f64,
    /// Microseconds from arrival to answer at worst.
    pub worst_us: f64,
    /// Requests a second that it would serve.
    pub capacity: f64,
}

/// One slot, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// Name of the workload.
    pub workload: String,
    /// Name of the device.
    pub device: String,
    /// First unit of the gpulet.
    pub first_unit: u32,
    /// Units of the gpulet.
    pub units: u32,
    /// Units of the device.
    pub units_total: u32,
    /// Rows a batch at most.
    pub batch: u32,
    /// Workloads that take turns with it in the gpulet.
    pub turns_with: Vec<String>,
    /// Workloads on other gpulets of the device.
    pub beside: Vec<String>,
    /// What the judge predicts.
    pub predicted: SlotPrediction,
    /// The objective, microseconds.
    pub slo_us: f64,
    /// The least units that do; none if those that it has do not.
    pub units_least: Option<u32>,
    /// The least units that would do with the device to itself.
    pub units_least_alone: Option<u32>,
    /// What is wrong with fewer.
    pub binds: Binding,
    /// The next smaller share, where the device gives one of which something is known.
    pub below: Option<Attempt>,
}

/// Explains every slot of a plan, in the order of the problem's workloads.
pub fn explain(question: &Question, plan: &Plan) -> Vec<Explained> {
    let mut explained = Vec::new();
    for device in question.problem.devices() {
        let gpulets: Vec<Gpulet> =
            plan.gpulets.iter().filter(|gpulet| gpulet.device == device.name).cloned().collect();
        if let Some(bench) = Bench::new(question, device, gpulets) {
            explained.extend(bench.explain());
        }
    }
    let place = |name: &str| question.problem.workloads().iter().position(|known| known.name == name);
    explained.sort_by_key(|explained| place(&explained.workload));
    explained
}

/// One device with what is on it, to try other shares on.
struct Bench<'a> {
    device: &'a Device,
    problem: Problem,
    gpulets: Vec<Gpulet>,
    judgement: Validation,
}

/// What came of a smaller share.
struct Trial {
    /// What is wrong with it; nothing if it does.
    lacks: Option<Binding>,
    attempt: Option<Attempt>,
}

impl<'a> Bench<'a> {
    /// None for a device without gpulets, or with one that nothing can be predicted of.
    fn new(question: &Question, device: &'a Device, gpulets: Vec<Gpulet>) -> Option<Self> {
        let runs = |workload: &&Workload| {
            gpulets.iter().flat_map(|gpulet| &gpulet.slots).any(|slot| slot.workload == workload.name)
        };
        let workloads: Vec<Workload> = question.problem.workloads().iter().filter(runs).cloned().collect();
        let known = |profile: &&Profile| {
            profile.device() == device.device_type.name
                && workloads.iter().any(|workload| workload.model == profile.model())
        };
        let profiles = question.profiles.iter().filter(known).cloned().collect();
        let interference = question.problem.interference().clone();
        let problem = Problem::new(vec![device.clone()], workloads, profiles, interference).ok()?;
        let problem = problem.at_quantile(question.quantile);
        let judgement = validate(&problem, &Plan { gpulets: gpulets.clone() });
        let slots = gpulets.iter().map(|gpulet| gpulet.slots.len()).sum::<usize>();
        (slots > 0 && judgement.slots.len() == slots).then_some(Self { device, problem, gpulets, judgement })
    }

    fn workload(&self, name: &str) -> Option<&Workload> {
        self.problem.workloads().iter().find(|workload| workload.name == name)
    }

    fn explain(&self) -> Vec<Explained> {
        let places = self.gpulets.iter().enumerate();
        let places = places.flat_map(|(at, gpulet)| (0..gpulet.slots.len()).map(move |slot| (at, slot)));
        let explained = places.zip(&self.judgement.slots);
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
            turns_with: names(&mut std::iter::once(gpulet)),
            beside: names(&mut others.map(|(_, gpulet)| gpulet)),
            predicted: predicted.clone(),
            slo_us: workload.slo_us,
            units_least: upto.get(first).copied(),
            units_least_alone: alone.copied(),
            binds: below.lacks.unwrap_or(Binding::Smallest),
            below: below.attempt,
        })
    }

    /// What the judge says of a slot whose gpulet has so many units. One that runs batch after batch may also take
    /// another batch; in a cycle or a window batches follow from that.
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
            let Some((attempt, turns_us, fits)) = self.attempt((at, slot), (units, batch), alone) else {
                continue;
            };
            if attempt.worst_us > workload.slo_us * (1.0 + SLACK) {
                late = Some(attempt);
                break;
            }
            if gpulet.duty_us.is_some_and(|duty| turns_us > duty * (1.0 + SLACK)) {
                return Trial { lacks: Some(Binding::Turns), attempt: Some(attempt) };
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

    /// The judge's prediction for other units and another batch, the turns of the whole gpulet, and whether the
    /// device's memory suffices; none where nothing is known.
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
        let judgement = validate(&self.problem, &Plan { gpulets });
        if judgement.slots.len() != wanted {
            return None;
        }
        let own = judgement.slots.iter().skip(first).take(slots);
        let turns_us = own.clone().map(|slot| slot.co_located_us).sum();
        let found = own.clone().nth(slot)?;
        let crowded = judgement.violations.iter();
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
        Some((attempt, turns_us, crowded == 0))
    }
}
