//! Assigns what has been planned to the devices that already hold most of it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::site::Floor;
use crate::problem::Device;

/// Swaps devices of equal type, memory and cost so that as many workloads as possible stay where the current plan has
/// them. Devices that share a fault domain with others stay as they are, because the domain limits which workloads
/// they may hold.
pub(super) fn named(floor: &mut Floor<'_>) {
    let Some(current) = floor.problem.current() else { return };
    let mut held: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for gpulet in &current.gpulets {
        held.entry(&gpulet.device)
            .or_default()
            .extend(gpulet.slots.iter().map(|slot| slot.workload.as_str()));
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
            let alike = device.device_type == site.device.device_type
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
