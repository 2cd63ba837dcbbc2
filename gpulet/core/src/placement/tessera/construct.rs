//! Fills devices part by part, and empties those that can be.

use super::super::demand::{Part, Unplaced};
use super::super::packing::{alone, beside, within};
use super::super::search::Sized;
use super::super::site::{Floor, Site};
use crate::problem::{Device, Problem};

/// Devices in use that a part is tried on: so many of those with just enough room for its price,
const TIGHT: usize = 3;
/// and so many spread evenly over all with more, for a newcomer makes its neighbours grow too.
const SPREAD: usize = 9;
/// Devices that are tried to be emptied at most.
const EMPTIED_MAX: usize = 64;
/// Devices in use whose cycles a part is tried in at most.
const CYCLES: usize = 4;

/// Parts that all parts together are cut into at most.
const PIECES_MAX: usize = 4_096;

/// Parts with what the gpulet serves alone that serves most for its share of a device.
pub(super) fn efficient<'a>(problem: &'a Problem, parts: &[Part<'a>]) -> Vec<(Part<'a>, f64)> {
    parts.iter().map(|part| (*part, efficient_rate(problem, part).unwrap_or(part.rate))).collect()
}

/// Parts cut into pieces of their most efficient size, where kernels do not fill larger ones; each piece is trusted
/// with `trust` of what it serves alone. None if that cuts nothing.
pub(super) fn cut<'a>(parts: &[(Part<'a>, f64)], trust: f64) -> Option<Vec<Part<'a>>> {
    let mut pieces = Vec::new();
    for (part, rate) in parts {
        let most = trust * rate;
        let mut left = part.rate;
        while left > most * (1.0 + 1e-9) && most > 0.0 {
            pieces.push(part.at_rate(most));
            left -= most;
            if pieces.len() > PIECES_MAX {
                return None;
            }
        }
        pieces.push(part.at_rate(left));
    }
    (pieces.len() > parts.len()).then_some(pieces)
}

/// What the gpulet serves alone that serves most for its share of a device's cost.
fn efficient_rate<'a>(problem: &'a Problem, part: &Part<'a>) -> Option<f64> {
    let mut best: Option<(f64, f64)> = None;
    let mut seen: Vec<&str> = Vec::new();
    for device in problem.devices() {
        if seen.contains(&device.kind.name.as_str()) {
            continue;
        }
        seen.push(&device.kind.name);
        let Some(fit) = part.on(problem, &device.kind) else { continue };
        for units in &device.kind.sizes {
            let in_time = |_, time: f64| 2.0 * time <= part.workload.slo_us;
            let Some((batch, time)) = fit.largest_batch(*units, in_time) else { continue };
            let rate = 1e6 * f64::from(batch) / (time - fit.profile.load_us(batch));
            let price = device.cost * f64::from(*units) / f64::from(device.kind.units);
            if best.is_none_or(|(most, _)| rate / price > most) {
                best = Some((rate / price, rate));
            }
        }
    }
    best.map(|(_, rate)| rate)
}

/// How much of a device a site uses, weighed with what the device costs.
fn used(site: &Site<'_>) -> f64 {
    site.device.cost.max(f64::MIN_POSITIVE) * f64::from(site.units_used()) / f64::from(site.device.kind.units)
}

/// The devices in use that may take the part, fullest first, with their free share.
fn open<'a>(floor: &Floor<'a>, part: &Part<'a>, except: Option<usize>) -> Vec<(f64, usize)> {
    let sites = floor.sites.iter().enumerate().filter(|(at, _)| Some(*at) != except);
    let mut open: Vec<(f64, usize)> = sites
        .map(|(at, site)| (f64::from(site.units_free()) / f64::from(site.device.kind.units), at))
        .collect();
    open.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    open.retain(|(_, at)| floor.sites.get(*at).is_some_and(|site| floor.admits(site.device, part)));
    open
}

/// The device in use on which the part makes shares grow least.
fn least_growth<'a>(floor: &Floor<'a>, part: Part<'a>, price: f64, except: Option<usize>) -> Option<(usize, Site<'a>)> {
    let problem = floor.problem;
    let open = open(floor, &part, except);
    let site_at = |at: usize| floor.sites.get(at);
    let mut best: Option<(f64, usize, Site<'a>)> = None;
    let mut offer = |at: usize, trial: Option<Site<'a>>| {
        let (Some(trial), Some(site)) = (trial, site_at(at)) else { return };
        let growth = used(&trial) - used(site);
        if best.as_ref().is_none_or(|(least, ..)| growth < *least) {
            best = Some((growth, at, trial));
        }
    };
    let enough = |(free, at): &(f64, usize)| {
        let cost = site_at(*at).map_or(0.0, |site| site.device.cost);
        *free > 0.0 && free * cost >= price * (1.0 - 1e-9)
    };
    let roomy: Vec<usize> = open.iter().filter(|open| enough(open)).map(|(_, at)| *at).collect();
    let step = roomy.len().saturating_sub(TIGHT).div_ceil(SPREAD).max(1);
    let spread = roomy.iter().rev().take(roomy.len().saturating_sub(TIGHT)).step_by(step);
    for at in roomy.iter().take(TIGHT).chain(spread) {
        offer(*at, beside(problem, site_at(*at)?, part));
    }
    // A part that fills most of a gpulet by itself has no turn to spare; the lightest gpulets have.
    let mut lanes: Vec<(f64, usize, usize)> = Vec::new();
    for (_, at) in &open {
        let site = site_at(*at)?;
        lanes.extend(site.lanes.iter().enumerate().map(|(lane, held)| {
            let units = f64::from(held.units) / f64::from(site.device.kind.units);
            (held.busy() * units, *at, lane)
        }));
    }
    lanes.sort_by(|left, right| left.0.total_cmp(&right.0).then((left.1, left.2).cmp(&(right.1, right.2))));
    for (_, at, lane) in lanes.into_iter().take(CYCLES) {
        offer(at, within(problem, site_at(at)?, lane, part));
    }
    best.map(|(_, at, site)| (at, site))
}

/// The unused device on which the part's share is cheapest; the first of several.
fn cheapest<'a>(floor: &Floor<'a>, part: Part<'a>) -> Option<Site<'a>> {
    let mut seen: Vec<&Device> = Vec::new();
    let mut best: Option<(f64, Site<'a>)> = None;
    for device in floor.candidates(&part) {
        let same = |known: &&Device| {
            known.kind.name == device.kind.name
                && known.cost.to_bits() == device.cost.to_bits()
                && known.memory_bytes == device.memory_bytes
        };
        if seen.iter().any(same) {
            continue;
        }
        seen.push(device);
        let Some(site) = alone(floor.problem, device, part) else { continue };
        let price = used(&site);
        if best.as_ref().is_none_or(|(least, _)| price < *least) {
            best = Some((price, site));
        }
    }
    best.map(|(_, site)| site)
}

/// Every part on its best place, on top of what is on the floor.
pub(in super::super) fn filled<'a>(start: &Floor<'a>, sized: &[Sized<'a>]) -> Result<Floor<'a>, Unplaced> {
    let mut floor = start.clone();
    for Sized { part, price } in sized.iter().copied() {
        add(&mut floor, part, price)?;
    }
    Ok(floor)
}

/// One more part on its best place; its price is the least cost that its share stands for. The device's name.
pub(super) fn add<'a>(floor: &mut Floor<'a>, part: Part<'a>, price: f64) -> Result<&'a str, Unplaced> {
    if let Some((at, site)) = least_growth(floor, part, price, None) {
        let name = &site.device.name;
        floor.replace(at, site.lanes, part);
        return Ok(name);
    }
    let site = cheapest(floor, part).ok_or_else(|| Unplaced::of(part.workload))?;
    floor.open(site.device, site.lanes);
    Ok(&site.device.name)
}

/// Moves everything off a device if all of it finds room on others, the least used first, until none can be emptied.
pub(super) fn emptied(floor: &mut Floor<'_>) {
    // Windows are laid out to the last unit, and nobody else knows how.
    if floor.sites.iter().flat_map(|site| &site.lanes).any(|lane| lane.placed.is_some()) {
        return;
    }
    let mut ordered: Vec<(f64, &str)> =
        floor.sites.iter().map(|site| (used(site), site.device.name.as_str())).collect();
    ordered.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(right.1)));
    for (_, name) in ordered.into_iter().take(EMPTIED_MAX) {
        let Some(at) = floor.sites.iter().position(|site| site.device.name == name) else { continue };
        let mut trial = floor.clone();
        let moved = trial.close(at);
        let all = moved.into_iter().all(|part| match least_growth(&trial, part, 0.0, None) {
            Some((at, site)) => {
                trial.replace(at, site.lanes, part);
                true
            }
            None => false,
        });
        if all {
            *floor = trial;
        }
    }
}
