//! Branch and bound over the assignment of parts to devices. The search is limited in nodes and in evaluated gpulets,
//! because these take the time and this crate has no clock.
//!
//! Interference makes "these fit on one device" non-linear, so an integer program would need every set of co-located
//! parts as a column. The maintained pure-Rust solver limits its search by wall time only. This search tries a part
//! on every used device that can hold it and on one unused device of each type, largest share first. It prunes a
//! branch when its devices and the shares still to be placed cost as much as the best plan so far.

use super::demand::{Part, Unplaced};
use super::packing::{added, alone, saturating, within};
use super::site::{Floor, Site};
use crate::problem::{Device, Problem};

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest number of search steps.
    pub nodes: u64,
    /// Largest number of gpulets evaluated on tried devices. Each step tries a part on every used device.
    pub looks: u64,
    /// Whether parts may join cycles. If not, each part has its own gpulet.
    pub cycles: bool,
    /// Cost that a plan must stay below.
    pub below: f64,
}

/// The best plan found.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    pub floor: Floor<'a>,
    pub cost: f64,
    /// Whether every branch was followed or pruned.
    pub complete: bool,
    pub nodes: u64,
}

/// A part with its least cost on any device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sized<'a> {
    pub part: Part<'a>,
    /// Least cost of its share.
    pub price: f64,
}

/// Returns the cheapest device of each type.
pub(super) fn cheapest_of_types(problem: &Problem) -> Vec<&Device> {
    let mut device_types: Vec<&Device> = Vec::new();
    for device in problem.devices() {
        match device_types.iter_mut().find(|known| known.device_type.name == device.device_type.name) {
            Some(known) if device.cost < known.cost => *known = device,
            Some(_) => {}
            None => device_types.push(device),
        }
    }
    device_types
}

/// Returns the least cost of the part's share on these devices; infinite if none serves it.
pub(super) fn price<'a>(problem: &'a Problem, device_types: &[&'a Device], part: Part<'a>) -> f64 {
    let prices = device_types.iter().filter_map(|device| {
        let site = alone(problem, device, part)?;
        Some(f64::from(site.units_used()) / f64::from(device.device_type.units) * device.cost)
    });
    prices.fold(f64::INFINITY, f64::min)
}

/// Splits off whole devices for parts that no single gpulet can serve. Returns the rest with their least shares,
/// largest first.
pub(super) fn sized<'a>(floor: &mut Floor<'a>, parts: Vec<Part<'a>>) -> Result<Vec<Sized<'a>>, Unplaced> {
    let problem = floor.problem;
    let device_types = cheapest_of_types(problem);
    let mut found = Vec::new();
    for mut part in parts {
        loop {
            let price = price(problem, &device_types, part);
            if price.is_finite() {
                found.push(Sized { part, price });
                break;
            }
            let whole = floor.candidates(&part).find_map(|device| saturating(problem, device, part));
            let site = whole.ok_or_else(|| Unplaced::of(part.workload))?;
            let served =
                site.lanes.iter().flat_map(|lane| &lane.pieces).map(|piece| piece.part.rate).sum::<f64>();
            let rest = part.rate - served;
            floor.open(site.device, site.lanes);
            if rest <= 1e-9 * part.rate {
                break;
            }
            part = part.at_rate(rest);
        }
    }
    found.sort_by(|left, right| right.price.total_cmp(&left.price));
    Ok(found)
}

/// Returns the cost of a device, if all devices cost the same.
pub(super) fn same_cost(problem: &Problem) -> Option<f64> {
    let first = problem.devices().first()?.cost;
    let same = problem.devices().iter().all(|device| device.cost.to_bits() == first.to_bits());
    (same && first > 0.0).then_some(first)
}

/// Rounds a cost up to a multiple of the device cost, if all devices cost the same.
pub(super) fn rounded(cost: f64, step: Option<f64>) -> f64 {
    step.map_or(cost, |step| (cost / step - 1e-9).ceil() * step)
}

/// Returns a lower bound on the cost of plans with one gpulet per part: solo shares, where two large shares never
/// share a device.
pub(super) fn least_cost(problem: &Problem, sized: &[Sized<'_>]) -> f64 {
    let step = same_cost(problem);
    let total: f64 = sized.iter().map(|sized| sized.price).sum();
    let mut bound = rounded(total, step);
    let Some(step) = step else { return bound };
    // Martello and Toth's second bound. It leaves out items below `small`. Items above 1 - small are alone, items
    // above a half need a device each, and the others fill the remaining space.
    let shares: Vec<f64> = sized.iter().map(|sized| sized.price / step).collect();
    for small in shares.iter().copied().filter(|share| *share <= 0.5) {
        let (mut alone, mut half, mut light) = (0_u32, 0.0, 0.0);
        let mut halves = 0_u32;
        for share in &shares {
            if *share > 1.0 - small + 1e-9 {
                alone = alone.saturating_add(1);
            } else if *share > 0.5 {
                halves = halves.saturating_add(1);
                half += share;
            } else if *share >= small {
                light += share;
            }
        }
        let over: f64 = light - (f64::from(halves) - half);
        let devices = f64::from(alone) + f64::from(halves) + (over - 1e-9).max(0.0).ceil();
        bound = bound.max(devices * step);
    }
    bound
}

/// Searches for the cheapest plan, starting from the devices already in use.
pub(super) fn search<'a>(floor: &Floor<'a>, sized: &[Sized<'a>], limits: Limits) -> Option<Found<'a>> {
    let mut tail: Vec<f64> = sized
        .iter()
        .rev()
        .scan(0.0, |sum, sized| {
            *sum += sized.price;
            Some(*sum)
        })
        .collect();
    tail.reverse();
    let mut walk = Walk {
        sized,
        tail,
        limits,
        step: same_cost(floor.problem),
        nodes: 0,
        looks: 0,
        stopped: false,
        best: None,
        fixed: floor.sites.len(),
    };
    walk.from(floor, 0);
    let Walk { nodes, stopped, best, .. } = walk;
    best.map(|(cost, floor)| Found { floor, cost, complete: !stopped, nodes })
}

struct Walk<'a, 'b> {
    sized: &'b [Sized<'a>],
    /// Sum of the prices from each position on.
    tail: Vec<f64>,
    limits: Limits,
    /// Cost of a device, if all devices cost the same.
    step: Option<f64>,
    nodes: u64,
    looks: u64,
    /// Whether the search reached a limit.
    stopped: bool,
    best: Option<(f64, Floor<'a>)>,
    /// Number of sites that are whole devices of one part and accept no other part.
    fixed: usize,
}

/// A device for one more part: a used one, by position, or an unused one.
struct Place<'a> {
    at: Option<usize>,
    site: Site<'a>,
}

impl<'a> Walk<'a, '_> {
    fn from(&mut self, floor: &Floor<'a>, at: usize) {
        if self.nodes >= self.limits.nodes || self.looks >= self.limits.looks {
            self.stopped = true;
            return;
        }
        self.nodes = self.nodes.saturating_add(1);
        let cost = floor.cost();
        let Some(next) = self.sized.get(at) else {
            if self.best.as_ref().is_none_or(|(least, _)| cost < *least) {
                self.best = Some((cost, floor.clone()));
            }
            return;
        };
        let free: f64 = if self.limits.cycles {
            f64::INFINITY
        } else {
            let open = floor.sites.iter().skip(self.fixed);
            open.map(|site| {
                site.device.cost * f64::from(site.units_free()) / f64::from(site.device.device_type.units)
            })
            .sum()
        };
        let more = (self.tail.get(at).copied().unwrap_or(0.0) - free).max(0.0);
        let bound = rounded(cost + more, self.step);
        let least = self.best.as_ref().map_or(self.limits.below, |(least, _)| *least);
        if bound >= least - 1e-9 {
            return;
        }
        for place in self.places(floor, next.part) {
            if self.stopped {
                return;
            }
            let mut child = floor.clone();
            match place.at {
                Some(at) => child.replace(at, place.site.lanes, next.part),
                None => child.open(place.site.device, place.site.lanes),
            }
            self.from(&child, at.saturating_add(1));
        }
    }

    /// Returns every device that the part fits on, the fullest first.
    fn places(&mut self, floor: &Floor<'a>, part: Part<'a>) -> Vec<Place<'a>> {
        let problem = floor.problem;
        let mut places: Vec<Place<'a>> = Vec::new();
        let mut looks = 0_u64;
        let mut offer = |at: Option<usize>, lanes: usize, site: Option<Site<'a>>| {
            looks = looks.saturating_add(1).saturating_add(u64::try_from(lanes).unwrap_or(u64::MAX));
            places.extend(site.map(|site| Place { at, site }));
        };
        for (at, site) in floor.sites.iter().enumerate().skip(self.fixed) {
            if !floor.admits(site.device, &part) {
                continue;
            }
            offer(Some(at), site.lanes.len(), added(problem, site, part, site.device.device_type.units));
            let lanes = if self.limits.cycles { site.lanes.len() } else { 0 };
            for lane in 0..lanes {
                offer(
                    Some(at),
                    site.lanes.len(),
                    within(problem, site, lane, part, site.device.device_type.units),
                );
            }
        }
        let mut seen: Vec<(&str, u64, u64, bool)> = Vec::new();
        for device in floor.candidates(&part) {
            // Devices of one type, cost and memory are equivalent, unless they share a fault domain with a used device.
            let apart = !floor.sites.iter().any(|site| site.device.fault_domain == device.fault_domain);
            let sort = (device.device_type.name.as_str(), device.cost.to_bits(), device.memory_bytes, apart);
            if !seen.contains(&sort) {
                seen.push(sort);
                offer(None, 0, alone(problem, device, part));
            }
        }
        places.sort_by_key(|place| (place.at.is_none(), place.at.map(|at| (place.site.units_free(), at))));
        self.looks = self.looks.saturating_add(looks);
        places
    }
}
