//! Fills devices part by part.

use super::super::demand::{Part, Unplaced};
use super::super::packing::{added, alone, within};
use super::super::search::Sized;
use super::super::site::{Floor, Site};
use crate::problem::Device;

/// Used devices that a part is tried on: this number of those with just enough space for its price,
const TIGHT: usize = 3;
/// and this number spread evenly over those with more, because a new part makes co-located shares grow too.
const SPREAD: usize = 9;
/// Largest number of used devices whose cycles a part is tried in.
const CYCLES: usize = 4;

/// Returns the fraction of a device that a site uses, weighted by the device's cost.
pub(super) fn used(site: &Site<'_>) -> f64 {
    site.device.cost.max(f64::MIN_POSITIVE) * f64::from(site.units_used()) / f64::from(site.device.device_type.units)
}

/// Returns the used device, other than `except`, on which the part makes shares grow least. The price of a part is
/// the least cost of its share. Sites with windows are skipped, because only their own policy can lay them out.
pub(super) fn least_growth<'a>(
    floor: &Floor<'a>,
    sized: &Sized<'a>,
    except: Option<usize>,
) -> Option<(usize, Site<'a>)> {
    let (problem, part) = (floor.problem, sized.part);
    let sites = || {
        let others = floor.sites.iter().enumerate().filter(|(at, _)| Some(*at) != except);
        others.filter(|(_, site)| !site.has_windows() && floor.admits(site.device, &part))
    };
    // The growth, the position and the resulting site. A trial stops when it grows as much as the best so far.
    let mut best: Option<(f64, usize, Site<'a>)> = None;
    let mut offer = |at: usize, site: &Site<'a>, to: &dyn Fn(u32) -> Option<Site<'a>>| {
        let least = best.as_ref().map(|(least, ..)| *least);
        let Some(trial) = most_units(site, least).and_then(to) else { return };
        let growth = used(&trial) - used(site);
        if least.is_none_or(|least| growth < least) {
            best = Some((growth, at, trial));
        }
    };
    let free = |site: &Site<'_>| f64::from(site.units_free()) / f64::from(site.device.device_type.units);
    let enough =
        |free: f64, site: &Site<'_>| free > 0.0 && free * site.device.cost >= sized.price * (1.0 - 1e-9);
    let roomy =
        sites().map(|(at, site)| (free(site), at, site)).filter(|(free, _, site)| enough(*free, site));
    let mut roomy: Vec<(f64, usize, &Site<'a>)> = roomy.collect();
    roomy.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    let step = roomy.len().saturating_sub(TIGHT).div_ceil(SPREAD).max(1);
    let spread = roomy.iter().rev().take(roomy.len().saturating_sub(TIGHT)).step_by(step);
    for (_, at, site) in roomy.iter().take(TIGHT).chain(spread) {
        offer(*at, site, &|most| added(problem, site, part, most));
    }
    for (at, lane, site) in lightest(sites()) {
        offer(at, site, &|most| within(problem, site, lane, part, most));
    }
    best.map(|(_, at, site)| (at, site))
}

/// Returns the most units with which a site has grown by less than that cost, or `None` if it cannot grow.
fn most_units(site: &Site<'_>, least: Option<f64>) -> Option<u32> {
    let device_type = &site.device.device_type;
    let Some(least) = least else { return Some(device_type.units) };
    let unit = site.device.cost.max(f64::MIN_POSITIVE) / f64::from(device_type.units);
    let more = (least / unit - 1e-9).ceil().clamp(0.0, f64::from(device_type.units));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
    let more = (more as u32).checked_sub(1)?;
    Some(site.units_used().saturating_add(more))
}

/// Returns the gpulets with most free time, because a part that nearly fills a gpulet leaves none.
fn lightest<'a: 'b, 'b>(
    sites: impl Iterator<Item = (usize, &'b Site<'a>)>,
) -> Vec<(usize, usize, &'b Site<'a>)> {
    let mut lanes: Vec<(f64, usize, usize, &Site<'a>)> = Vec::new();
    for (at, site) in sites {
        lanes.extend(site.lanes.iter().enumerate().map(|(lane, held)| {
            let units = f64::from(held.units) / f64::from(site.device.device_type.units);
            (held.busy() * units, at, lane, site)
        }));
    }
    type Light<'a, 'b> = (f64, usize, usize, &'b Site<'a>);
    let order = |left: &Light<'_, '_>, right: &Light<'_, '_>| {
        left.0.total_cmp(&right.0).then((left.1, left.2).cmp(&(right.1, right.2)))
    };
    if lanes.len() > CYCLES {
        lanes.select_nth_unstable_by(CYCLES, order);
        lanes.truncate(CYCLES);
    }
    lanes.sort_by(order);
    lanes.into_iter().map(|(_, at, lane, site)| (at, lane, site)).collect()
}

/// Returns the unused device on which the part's share is cheapest; the first of several.
fn cheapest<'a>(floor: &Floor<'a>, part: Part<'a>) -> Option<Site<'a>> {
    let mut seen: Vec<&Device> = Vec::new();
    let mut best: Option<(f64, Site<'a>)> = None;
    for device in floor.candidates(&part) {
        let same = |known: &&Device| {
            known.device_type.name == device.device_type.name
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

/// Places every part, in addition to what is on the floor.
pub(in super::super) fn filled<'a>(start: &Floor<'a>, sized: &[Sized<'a>]) -> Result<Floor<'a>, Unplaced> {
    let mut floor = start.clone();
    for sized in sized {
        add(&mut floor, sized)?;
    }
    Ok(floor)
}

/// Places one more part. Returns the device's name.
pub(super) fn add<'a>(floor: &mut Floor<'a>, sized: &Sized<'a>) -> Result<&'a str, Unplaced> {
    let part = sized.part;
    if let Some((at, site)) = least_growth(floor, sized, None) {
        let name = &site.device.name;
        floor.replace(at, site.lanes, part);
        return Ok(name);
    }
    let site = cheapest(floor, part).ok_or_else(|| Unplaced::of(part.workload))?;
    floor.open(site.device, site.lanes);
    Ok(&site.device.name)
}
