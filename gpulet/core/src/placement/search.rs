//! Branch and bound over who lives with whom, limited in nodes and in the gpulets that are looked at, which are what
//! takes time: this crate knows no clock.
//!
//! Interference makes "these fit on one device" non-linear, so an integer programme would need every set of
//! cohabitants as a column, and the maintained pure-Rust solver limits its search by wall time only. Here a part goes
//! to every device in use that can hold it and to one unused device of each sort, largest share first; a branch is
//! cut when its devices and the shares still to be placed cost as much as the best plan so far.

use super::demand::{Part, Unplaced};
use super::packing::{alone, beside, saturating, within};
use super::site::{Floor, Site};
use crate::problem::{Device, Problem};

/// What a search may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Steps of the search at most.
    pub nodes: u64,
    /// Gpulets looked at on devices that are tried, at most; a step tries a part on every device in use.
    pub looks: u64,
    /// Whether parts may join cycles, or each has a gpulet of its own.
    pub cycles: bool,
    /// Only plans that cost less are looked for.
    pub below: f64,
}

/// The best that was found.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    pub floor: Floor<'a>,
    pub cost: f64,
    /// Whether every branch was followed or cut.
    pub complete: bool,
    pub nodes: u64,
}

/// Parts with what they take at least of any device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sized<'a> {
    pub part: Part<'a>,
    /// The least cost that its share stands for.
    pub price: f64,
}

/// The cheapest device of each kind.
pub(super) fn cheapest_of_kinds(problem: &Problem) -> Vec<&Device> {
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

/// The least cost that the part's share of one of these devices stands for; infinite if none serves it.
pub(super) fn price<'a>(problem: &'a Problem, device_types: &[&'a Device], part: Part<'a>) -> f64 {
    let prices = device_types.iter().filter_map(|device| {
        let site = alone(problem, device, part)?;
        Some(f64::from(site.units_used()) / f64::from(device.device_type.units) * device.cost)
    });
    prices.fold(f64::INFINITY, f64::min)
}

/// Splits off whole devices from parts that no single gpulet serves; the rest with their least shares, largest
/// first.
pub(super) fn sized<'a>(floor: &mut Floor<'a>, parts: Vec<Part<'a>>) -> Result<Vec<Sized<'a>>, Unplaced> {
    let problem = floor.problem;
    let device_types = cheapest_of_kinds(problem);
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

/// What all devices cost if they cost the same.
pub(super) fn same_cost(problem: &Problem) -> Option<f64> {
    let first = problem.devices().first()?.cost;
    let same = problem.devices().iter().all(|device| device.cost.to_bits() == first.to_bits());
    (same && first > 0.0).then_some(first)
}

/// Costs are sums, so they come in steps where all devices cost the same.
pub(super) fn rounded(cost: f64, step: Option<f64>) -> f64 {
    step.map_or(cost, |step| (cost / step - 1e-9).ceil() * step)
}

/// What no plan with a gpulet for each part can undercut: shares alone, and large shares that cannot share.
pub(super) fn least_cost(problem: &Problem, sized: &[Sized<'_>]) -> f64 {
    let step = same_cost(problem);
    let total: f64 = sized.iter().map(|sized| sized.price).sum();
    let mut bound = rounded(total, step);
    let Some(step) = step else { return bound };
    // Martello and Toth's second bound: with items of less than `small` left out, those above 1 - small are alone,
    // those above a half need a device each, and the others fill what is left beside them.
    let shares: Vec<f64> = sized.iter().map(|sized| sized.price / step).collect();
    for small in shares.iter().copied().filter(|share| *share <= 0.5) {
        let (mut alone, mut half, mut beside) = (0_u32, 0.0, 0.0);
        let mut halves = 0_u32;
        for share in &shares {
            if *share > 1.0 - small + 1e-9 {
                alone = alone.saturating_add(1);
            } else if *share > 0.5 {
                halves = halves.saturating_add(1);
                half += share;
            } else if *share >= small {
                beside += share;
            }
        }
        let over: f64 = beside - (f64::from(halves) - half);
        let devices = f64::from(alone) + f64::from(halves) + (over - 1e-9).max(0.0).ceil();
        bound = bound.max(devices * step);
    }
    bound
}

/// Looks for the plan that costs least, from what is on the floor already.
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
    /// What all devices cost, where they cost the same.
    step: Option<f64>,
    nodes: u64,
    looks: u64,
    /// Whether a limit was reached.
    stopped: bool,
    best: Option<(f64, Floor<'a>)>,
    /// Sites that are whole devices of one part and take nobody in.
    fixed: usize,
}

/// One more part on a device: in use, by position, or not yet.
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

    /// Everywhere that the part fits, fullest devices first.
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
            offer(Some(at), site.lanes.len(), beside(problem, site, part, site.device.device_type.units));
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
            // Devices of one sort are the same choice, unless they share a fate with one in use.
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
