//! Puts what has been planned onto the devices that already hold most of it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::demand::{Part, parts};
use super::super::packing::{alone, settled};
use super::super::site::{Floor, Lane, Piece, Site};
use super::construct;
use crate::plan::{Gpulet, Slot};
use crate::problem::{Device, Problem, Workload};

/// Workloads that may have changed since the plan in force for it to be continued, as one in so many.
const CHANGED_OF: usize = 20;

/// What the plan in force serves of each workload, and in which fault domains.
#[derive(Default)]
struct Held<'a> {
    rate: f64,
    domains: Vec<&'a str>,
}

/// What the devices of the plan in force cost; none if there is no plan, or one of them is gone.
pub(super) fn cost(problem: &Problem) -> Option<f64> {
    let devices: BTreeMap<&str, f64> =
        problem.devices().iter().map(|device| (device.name.as_str(), device.cost)).collect();
    problem.current()?.devices().into_iter().map(|name| devices.get(name).copied()).sum()
}

/// The plan in force with only those devices planned again whose workloads changed; none if there is no such plan,
/// more than a few changed, or what changed finds no room in it. Also the names of the devices planned again.
pub(super) fn resumed(problem: &Problem) -> Option<(Floor<'_>, BTreeSet<&str>)> {
    let current = problem.current()?;
    let devices: BTreeMap<&str, &Device> =
        problem.devices().iter().map(|device| (device.name.as_str(), device)).collect();
    let workloads: BTreeMap<&str, &Workload> =
        problem.workloads().iter().map(|workload| (workload.name.as_str(), workload)).collect();
    let mut held: BTreeMap<&str, Held<'_>> = BTreeMap::new();
    for (gpulet, slot) in current.gpulets.iter().flat_map(|gpulet| gpulet.slots.iter().map(move |slot| (gpulet, slot))) {
        let domain = devices.get(gpulet.device.as_str())?.fault_domain.as_str();
        let known = held.entry(&slot.workload).or_default();
        known.rate += slot.rate;
        if !known.domains.contains(&domain) {
            known.domains.push(domain);
        }
    }
    let same = |workload: &Workload| {
        let known = held.get(workload.name.as_str());
        let enough = |held: &Held<'_>| u32::try_from(held.domains.len()).is_ok_and(|has| has >= workload.replicas_min);
        let served = |held: &Held<'_>| (held.rate - workload.wanted()).abs() <= 1e-9 * workload.wanted();
        if workload.is_needed() { known.is_some_and(|held| enough(held) && served(held)) } else { known.is_none() }
    };
    let changed: BTreeSet<&str> =
        workloads.values().filter(|workload| !same(workload)).map(|workload| workload.name.as_str()).collect();
    let gone = held.keys().filter(|name| !workloads.contains_key(*name)).count();
    if changed.len().saturating_add(gone).saturating_mul(CHANGED_OF) > workloads.len() {
        return None;
    }
    let mut floor = Floor::new(problem);
    let mut touched = BTreeSet::new();
    let mut by_device: BTreeMap<&str, Vec<&Gpulet>> = BTreeMap::new();
    for gpulet in &current.gpulets {
        by_device.entry(&gpulet.device).or_default().push(gpulet);
    }
    for (name, gpulets) in by_device {
        let device = devices.get(name).copied()?;
        let site = kept(problem, device, &gpulets, &workloads, &held, &changed)?;
        let leaves = |slot: &Slot| !stays(slot, &workloads, &changed);
        if gpulets.iter().flat_map(|gpulet| &gpulet.slots).any(leaves) {
            touched.insert(name);
        }
        if !site.lanes.is_empty() {
            floor.open(device, site.lanes);
        }
    }
    for part in parts(problem).into_iter().filter(|part| changed.contains(part.workload.name.as_str())) {
        touched.insert(construct::add(&mut floor, part, price(problem, part)?).ok()?);
    }
    Some((floor, touched))
}

fn stays(slot: &Slot, workloads: &BTreeMap<&str, &Workload>, changed: &BTreeSet<&str>) -> bool {
    workloads.contains_key(slot.workload.as_str()) && !changed.contains(slot.workload.as_str())
}

fn price(problem: &Problem, part: Part<'_>) -> Option<f64> {
    let mut seen: Vec<&str> = Vec::new();
    let mut least: Option<f64> = None;
    for device in problem.devices() {
        if seen.contains(&device.kind.name.as_str()) {
            continue;
        }
        seen.push(&device.kind.name);
        let Some(site) = alone(problem, device, part) else { continue };
        let price = device.cost * f64::from(site.units_used()) / f64::from(device.kind.units);
        least = Some(least.map_or(price, |least| least.min(price)));
    }
    least
}

/// A device as the plan in force has it, without what changed; planned again if it held any of that.
fn kept<'a>(
    problem: &'a Problem,
    device: &'a Device,
    gpulets: &[&'a Gpulet],
    workloads: &BTreeMap<&str, &'a Workload>,
    held: &BTreeMap<&str, Held<'_>>,
    changed: &BTreeSet<&str>,
) -> Option<Site<'a>> {
    let stays = |slot: &Slot| stays(slot, workloads, changed);
    let touched = gpulets.iter().flat_map(|gpulet| &gpulet.slots).any(|slot| !stays(slot));
    let mut lanes = Vec::new();
    for gpulet in gpulets {
        let mut pieces = Vec::new();
        for slot in gpulet.slots.iter().filter(|slot| stays(slot)) {
            let workload = workloads.get(slot.workload.as_str()).copied()?;
            let domains = held.get(slot.workload.as_str()).map_or(&[][..], |held| &held.domains);
            let at = domains.iter().position(|domain| *domain == device.fault_domain)?;
            let part = Part { workload, part: u32::try_from(at).ok()?, rate: slot.rate };
            pieces.push(Piece { part, fit: part.on(problem, &device.kind)?, batch: slot.batch });
        }
        let placed = gpulet.window.map(|window| (gpulet.first_unit, window));
        if !pieces.is_empty() {
            let duty_us = gpulet.duty_us.filter(|_| pieces.len() > 1);
            lanes.push(Lane { units: gpulet.units, placed, duty_us, pieces });
        }
    }
    let site = Site { device, lanes };
    if !touched || site.lanes.is_empty() {
        return Some(site);
    }
    if site.lanes.iter().any(|lane| lane.placed.is_some()) {
        return None;
    }
    let least = *device.kind.sizes.first()?;
    let lanes = site.lanes.into_iter().map(|lane| Lane { units: least, ..lane }).collect();
    settled(problem, Site { device, lanes })
}

/// Swaps devices of one sort so that as many workloads as possible stay where the plan in force has them. Devices
/// that share a fate with others stay as they are, for who may be beside whom depends on them.
pub(super) fn named(floor: &mut Floor<'_>) {
    let Some(current) = floor.problem.current() else { return };
    let mut held: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for gpulet in &current.gpulets {
        held.entry(&gpulet.device).or_default().extend(gpulet.slots.iter().map(|slot| slot.workload.as_str()));
    }
    let devices = floor.problem.devices();
    let mut domains: BTreeMap<&str, usize> = BTreeMap::new();
    for device in devices {
        *domains.entry(&device.fault_domain).or_default() += 1;
    }
    let movable = |device: &Device| domains.get(device.fault_domain.as_str()) == Some(&1);
    let mut pairs: Vec<(usize, usize, usize)> = Vec::new();
    for (at, site) in floor.sites.iter().enumerate().filter(|(_, site)| movable(site.device)) {
        let names: BTreeSet<&str> = site
            .lanes
            .iter()
            .flat_map(|lane| &lane.pieces)
            .map(|piece| piece.part.workload.name.as_str())
            .collect();
        for (position, device) in devices.iter().enumerate().filter(|(_, device)| movable(device)) {
            let alike = device.kind == site.device.kind
                && device.memory_bytes == site.device.memory_bytes
                && device.cost.to_bits() == site.device.cost.to_bits();
            let same = held.get(device.name.as_str()).map_or(0, |held| held.intersection(&names).count());
            if alike && same > 0 {
                pairs.push((same, at, position));
            }
        }
    }
    pairs.sort_by_key(|(same, at, position)| (std::cmp::Reverse(*same), *at, *position));
    let mut chosen: BTreeMap<usize, usize> = BTreeMap::new();
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    for (_, at, position) in pairs {
        if !chosen.contains_key(&at) && taken.insert(position) {
            chosen.insert(at, position);
        }
    }
    for (at, position) in chosen {
        if let Some(device) = devices.get(position) {
            floor.swap(at, device);
        }
    }
}
