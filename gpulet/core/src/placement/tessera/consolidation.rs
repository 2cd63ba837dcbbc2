//! Empties devices into others.

use super::super::packing::settled;
use super::super::search::{Sized, cheapest_of_types, price};
use super::super::site::{Floor, Lane, Site};
use super::construct::{least_growth, used};
use crate::problem::{Device, Problem};

/// Largest number of devices that the policy tries to empty.
const EMPTIED_MAX: usize = 64;

/// Returns the site with the least sufficient shares. Windows stay as they are, because they fill the device to the
/// last unit.
pub(super) fn shrunk<'a>(problem: &'a Problem, site: &Site<'a>) -> Option<Site<'a>> {
    if site.has_windows() {
        return site.is_sound(problem).then(|| site.clone());
    }
    let least = site.device.device_type.size_least();
    let lanes = site.lanes.iter().map(|lane| Lane { units: least, ..lane.clone() }).collect();
    settled(problem, Site { device: site.device, lanes }, site.device.device_type.units)
}

/// Returns the floor with the least sufficient shares on all sites and with devices emptied, or `None` if no device
/// can be.
pub(super) fn tightened<'a>(floor: &Floor<'a>) -> Option<Floor<'a>> {
    let mut tight = floor.clone();
    for site in &mut tight.sites {
        if let Some(shrunk) = shrunk(floor.problem, site) {
            *site = shrunk;
        }
    }
    emptied(&mut tight);
    (tight.sites.len() < floor.sites.len()).then_some(tight)
}

/// Returns the device names of sites, the least used first.
pub(super) fn least_used<'a: 'b, 'b>(sites: impl Iterator<Item = &'b Site<'a>>) -> Vec<&'a str> {
    let mut ordered: Vec<(f64, &str)> = sites.map(|site| (used(site), site.device.name.as_str())).collect();
    ordered.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(right.1)));
    ordered.into_iter().map(|(_, name)| name).collect()
}

/// Moves everything off a device if all of it fits on others. Returns the names of the other devices, or `None`
/// if it does not fit.
pub(super) fn empty<'a>(floor: &mut Floor<'a>, device_types: &[&'a Device], name: &str) -> Option<Vec<&'a str>> {
    let problem = floor.problem;
    let found = invariant::expected!(floor.sites.iter().enumerate().find(|(_, site)| site.device.name == name), "placement.unused_device_emptied");
    let (at, site) = found?;
    let pieces = site.lanes.iter().flat_map(|lane| &lane.pieces).map(|piece| piece.part);
    let mut parts: Vec<Sized<'a>> =
        pieces.map(|part| Sized { part, price: price(problem, device_types, part) }).collect();
    parts.sort_by(|left, right| right.price.total_cmp(&left.price));
    // Most devices cannot be emptied. The part that needs most space usually shows it.
    least_growth(floor, parts.first()?, Some(at))?;
    let mut trial = floor.clone();
    trial.close(at);
    let mut joined = Vec::new();
    for sized in &parts {
        let (at, site) = least_growth(&trial, sized, None)?;
        joined.push(site.device.name.as_str());
        trial.replace(at, site.lanes, sized.part);
    }
    *floor = trial;
    Some(joined)
}

/// Tries to empty devices, the least used first.
pub(super) fn emptied(floor: &mut Floor<'_>) {
    if floor.sites.iter().all(Site::has_windows) {
        return;
    }
    let device_types = cheapest_of_types(floor.problem);
    for name in least_used(floor.sites.iter()).into_iter().take(EMPTIED_MAX) {
        empty(floor, &device_types, name);
    }
}
