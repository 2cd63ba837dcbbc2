//! The part of the current plan that still applies: its devices as they are, with the current rates.

use std::collections::{BTreeMap, BTreeSet};

use super::super::demand::{Part, parts_of};
use super::super::site::{Lane, Piece, Site};
use crate::plan::{Gpulet, Plan};
use crate::problem::{Device, Problem, Workload};

/// Relative difference up to which rates are equal.
const SAME_RATE: f64 = 1e-9;

/// A device of the current plan.
pub(super) struct Held<'a> {
    /// The site as planned, one lane per gpulet and one piece per slot, without slots that are no longer needed.
    pub site: Site<'a>,
    pub gpulets: Vec<&'a Gpulet>,
    /// Whether all slots are still needed.
    pub whole: bool,
}

/// The current plan, read for the current problem.
pub(super) struct CurrentPlan<'a> {
    pub held: Vec<Held<'a>>,
    /// Parts without a place: new, or on a removed device.
    pub unplaced: Vec<Part<'a>>,
    /// Workloads that need more than they have.
    pub rising: BTreeSet<&'a str>,
    /// Whether a workload needs more or less, or was added or removed.
    pub changed: bool,
    /// Whether a workload has a place that it no longer needs.
    pub leaving: bool,
}

/// A gpulet with the part that each of its slots serves now; `None` for a slot that is no longer needed.
type Assigned<'a> = (&'a Gpulet, Vec<Option<Part<'a>>>);

/// A workload's slots in the current plan: positions of gpulet and slot, fault domain and rate.
#[derive(Default)]
struct Slots<'a> {
    places: Vec<(usize, usize)>,
    domains: Vec<&'a str>,
    rates: Vec<f64>,
}

impl<'a> Slots<'a> {
    /// Returns the part of the workload that each slot serves. Slots in one fault domain serve one part.
    fn parts(&self) -> (Vec<u32>, u32) {
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        let number = |domain: &&'a str| {
            let next = u32::try_from(seen.len()).unwrap_or(u32::MAX);
            *seen.entry(domain).or_insert(next)
        };
        let numbers: Vec<u32> = self.domains.iter().map(number).collect();
        (numbers, u32::try_from(seen.len()).unwrap_or(u32::MAX))
    }
}

/// Reads the current plan as far as the problem's devices still hold it. Returns `None` without one.
pub(super) fn current_plan(problem: &Problem) -> Option<CurrentPlan<'_>> {
    let current = problem.current()?;
    let devices: BTreeMap<&str, &Device> =
        problem.devices().iter().map(|device| (device.name.as_str(), device)).collect();
    let mut current_plan = CurrentPlan {
        held: Vec::new(),
        unplaced: Vec::new(),
        rising: BTreeSet::new(),
        changed: false,
        leaving: false,
    };
    let slots = assigned(problem, current, &devices, &mut current_plan);
    let mut by_device: BTreeMap<&str, Vec<Assigned<'_>>> = BTreeMap::new();
    for (gpulet, slots) in current.gpulets.iter().zip(slots) {
        by_device.entry(&gpulet.device).or_default().push((gpulet, slots));
    }
    for (name, gpulets) in by_device {
        match devices.get(name) {
            Some(device) => current_plan.held.push(held(problem, device, gpulets)?),
            None => {
                let parts = gpulets.into_iter().flat_map(|(_, slots)| slots).flatten();
                current_plan.unplaced.extend(parts);
            }
        }
    }
    Some(current_plan)
}

/// Returns what each slot of each gpulet serves now; `None` for a slot that is no longer needed.
fn assigned<'a>(
    problem: &'a Problem,
    current: &'a Plan,
    devices: &BTreeMap<&str, &'a Device>,
    current_plan: &mut CurrentPlan<'a>,
) -> Vec<Vec<Option<Part<'a>>>> {
    let mut by_workload: BTreeMap<&str, Slots<'_>> = BTreeMap::new();
    for (at, gpulet) in current.gpulets.iter().enumerate() {
        let domain =
            devices.get(gpulet.device.as_str()).map_or(gpulet.device.as_str(), |device| &device.fault_domain);
        for (slot, held) in gpulet.slots.iter().enumerate() {
            let slots = by_workload.entry(&held.workload).or_default();
            slots.places.push((at, slot));
            slots.domains.push(domain);
            slots.rates.push(held.rate);
        }
    }
    let mut assigned: Vec<Vec<Option<Part<'_>>>> =
        current.gpulets.iter().map(|gpulet| vec![None; gpulet.slots.len()]).collect();
    for workload in problem.workloads().iter().filter(|workload| workload.is_needed()) {
        let slots = by_workload.remove(workload.name.as_str()).unwrap_or_default();
        let (numbers, domains) = slots.parts();
        if domains < workload.replicas_min.max(1) {
            current_plan.unplaced.extend(parts_of(workload));
            current_plan.changed = true;
            continue;
        }
        let (held, wanted): (f64, f64) = (slots.rates.iter().sum(), workload.wanted());
        if held < wanted * (1.0 - SAME_RATE) {
            current_plan.rising.insert(&workload.name);
        }
        current_plan.changed |= (held - wanted).abs() > SAME_RATE * wanted;
        let rates = shared_out(slots.rates, workload);
        for (((gpulet, slot), part), rate) in slots.places.into_iter().zip(numbers).zip(rates) {
            let Some(place) = assigned.get_mut(gpulet).and_then(|slots| slots.get_mut(slot)) else {
                invariant::violated!("placement.unknown_slot");
                continue;
            };
            // Parts that need not be in different fault domains may share one.
            let part = if workload.replicas_min > 1 { part } else { 0 };
            *place = rate.map(|rate| Part { workload, part, rate });
        }
    }
    current_plan.leaving = !by_workload.is_empty();
    current_plan.changed |= current_plan.leaving;
    assigned
}

/// Divides a workload's rate among its slots, given their previous rates. Replicas get equal rates. Otherwise the
/// smallest slot absorbs the difference, because it holds what a whole number of devices left over. Returns `None`
/// for a slot that is no longer needed.
fn shared_out(rates: Vec<f64>, workload: &Workload) -> Vec<Option<f64>> {
    let (held, wanted): (f64, f64) = (rates.iter().sum(), workload.wanted());
    if (held - wanted).abs() <= SAME_RATE * wanted {
        return rates.into_iter().map(Some).collect();
    }
    if held <= 0.0 || workload.replicas_min > 1 {
        let share = |rate: f64| if held > 0.0 { rate / held } else { 1.0 / count(rates.len()) };
        return rates.iter().map(|rate| Some(wanted * share(*rate))).collect();
    }
    let mut order: Vec<usize> = (0..rates.len()).collect();
    let rate_at = |at: usize| rates.get(at).copied().unwrap_or(0.0);
    order.sort_by(|left, right| rate_at(*left).total_cmp(&rate_at(*right)));
    let largest = order.last().copied();
    let mut next: Vec<Option<f64>> = rates.iter().copied().map(Some).collect();
    let mut more = wanted - held;
    for at in order {
        let rate = rate_at(at) + more;
        let kept = rate > SAME_RATE * wanted || Some(at) == largest;
        match next.get_mut(at) {
            Some(next) => *next = kept.then_some(rate.max(0.0)),
            None => invariant::violated!("placement.rate_of_unknown_slot"),
        }
        if kept {
            break;
        }
        more = rate;
    }
    next
}

fn count(items: usize) -> f64 {
    f64::from(u32::try_from(items).unwrap_or(u32::MAX))
}

fn held<'a>(problem: &'a Problem, device: &'a Device, gpulets: Vec<Assigned<'a>>) -> Option<Held<'a>> {
    let mut held = Held { site: Site { device, lanes: Vec::new() }, gpulets: Vec::new(), whole: true };
    for (gpulet, parts) in gpulets {
        let mut pieces = Vec::new();
        for (slot, part) in gpulet.slots.iter().zip(parts) {
            match part {
                Some(part) => {
                    pieces.push(Piece { part, fit: part.on(problem, &device.device_type)?, batch: slot.batch });
                }
                None => held.whole = false,
            }
        }
        held.gpulets.push(gpulet);
        if !pieces.is_empty() {
            let placed = gpulet.window.map(|window| (gpulet.first_unit, window));
            held.site.lanes.push(Lane { units: gpulet.units, placed, duty_us: gpulet.duty_us, pieces });
        }
    }
    Some(held)
}
