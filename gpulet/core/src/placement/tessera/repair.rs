//! Continues the current plan. Devices that keep every objective and rate stay exactly as they are, and changes are
//! planned on as few other devices as possible. A device is released if its contents fit elsewhere with few moves.

use std::collections::{BTreeMap, BTreeSet};

use super::super::demand::Part;
use super::super::search::{cheapest_of_types, sized};
use super::super::site::{Floor, Lane, Site};
use super::current_plan::{CurrentPlan, Held, current_plan};
use super::{SAME_COST, consolidation, construct, joining, stretch};
use crate::plan::{Gpulet, Plan, Slot};
use crate::problem::Problem;

/// Largest number of moves to another device that releasing a device is worth.
const MOVES_A_DEVICE: u32 = 16;
/// The same, if the released device only compensates for an additional one.
const MOVES_NOT_ONE_MORE: u32 = 3;
/// Number of devices, those with the lowest need first, whose shares are shrunk to see what else fits.
const SHRUNK: usize = 12;
/// Largest number of devices that the policy tries to empty.
const EMPTIED: usize = 8;

/// The current plan, continued.
pub(super) struct Repaired<'a> {
    pub floor: Floor<'a>,
    /// Repartitioned devices.
    touched: BTreeSet<&'a str>,
    /// Gpulets of the current plan on each device.
    before: BTreeMap<&'a str, Vec<&'a Gpulet>>,
    /// Number of parts that needed a new place.
    pub moved: usize,
    /// Whether no workload has changed and the whole current plan holds.
    pub stands: bool,
    /// Whether a workload needs more than the current plan gives it.
    pub rising: bool,
    /// Whether no workload needs more, needs a new place, or leaves one.
    pub suffices: bool,
}

impl<'a> Repaired<'a> {
    /// Returns the plan. If `stretched`, repartitioned devices use their remaining units.
    pub fn plan(&self, stretched: bool) -> Plan {
        let mut floor = self.floor.clone();
        if stretched {
            stretch::stretched(&mut floor, |site| self.touched.contains(site));
        }
        let mut gpulets = Vec::new();
        for site in &floor.sites {
            match self.before.get(site.device.name.as_str()) {
                Some(before) if !self.touched.contains(site.device.name.as_str()) => {
                    gpulets.extend(
                        before.iter().zip(&site.lanes).map(|(gpulet, lane)| to_the_letter(gpulet, lane)),
                    );
                }
                _ => gpulets.extend(site.gpulets(floor.problem)),
            }
        }
        Plan::new(gpulets)
    }
}

/// Returns the gpulet as it is, with the current rates.
fn to_the_letter(gpulet: &Gpulet, lane: &Lane<'_>) -> Gpulet {
    let slots = gpulet.slots.iter().zip(&lane.pieces);
    let slots = slots.map(|(slot, piece)| Slot { rate: piece.part.rate, ..slot.clone() }).collect();
    Gpulet { slots, ..gpulet.clone() }
}

/// Continues the current plan. Returns `None` without one, or if the changes do not fit.
pub(super) fn repaired(problem: &Problem) -> Option<Repaired<'_>> {
    let CurrentPlan { held, mut unplaced, rising, changed, leaving } = current_plan(problem)?;
    let mut repaired = Repaired {
        floor: Floor::new(problem),
        touched: BTreeSet::new(),
        before: BTreeMap::new(),
        moved: 0,
        stands: false,
        rising: !rising.is_empty(),
        suffices: rising.is_empty() && !leaving,
    };
    let cost: f64 = held.iter().map(|held| held.site.device.cost).sum();
    let mut needs: Vec<(f64, usize)> = Vec::new();
    for Held { site, gpulets, whole } in held {
        let name = site.device.name.as_str();
        let need = if whole { need(problem, &site, &gpulets) } else { None };
        repaired.before.insert(name, gpulets);
        let site = match need {
            Some(need) => {
                needs.push((need, repaired.floor.sites.len()));
                site
            }
            None => {
                let (site, out) = repaired_site(problem, &site, &rising);
                unplaced.extend(out);
                repaired.touched.insert(name);
                site
            }
        };
        if !site.lanes.is_empty() {
            repaired.floor.open(site.device, site.lanes);
        }
    }
    needs.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    repaired.suffices &= unplaced.is_empty();
    repaired.stands = !changed && repaired.touched.is_empty();
    if changed || !repaired.touched.is_empty() {
        repaired.shrink(needs.into_iter().map(|(_, at)| at));
        repaired.place_all(unplaced)?;
        repaired.empty(cost);
        let touched = &repaired.touched;
        joining::join(&mut repaired.floor, |device| touched.contains(device));
    }
    Some(repaired)
}

/// Returns the fraction of the device that a site of the current plan needs. Returns `None` if a workload on it is
/// late or not served, or a batch takes longer than the plan says.
fn need(problem: &Problem, site: &Site<'_>, gpulets: &[&Gpulet]) -> Option<f64> {
    let times = site.times_us(problem)?;
    if !site.fits() || !site.holds(&times) {
        return None;
    }
    let mut used = 0.0;
    for ((lane, gpulet), times) in site.lanes.iter().zip(gpulets).zip(&times) {
        let mut busiest = 0.0_f64;
        for ((piece, slot), time) in lane.pieces.iter().zip(&gpulet.slots).zip(times) {
            if *time > slot.budget_us * (1.0 + crate::validate::TOLERANCE) {
                return None;
            }
            busiest = busiest.max(lane.use_of(piece, *time));
        }
        used += busiest * f64::from(lane.units);
    }
    Some(used / f64::from(site.device.device_type.units))
}

/// Repartitions a site. Returns it with the parts that do not fit: those that rise, if the others can stay, or all.
fn repaired_site<'a>(problem: &'a Problem, site: &Site<'a>, rising: &BTreeSet<&str>) -> (Site<'a>, Vec<Part<'a>>) {
    if let Some(site) = consolidation::shrunk(problem, site) {
        return (site, Vec::new());
    }
    let rises = |part: &Part<'_>| rising.contains(part.workload.name.as_str());
    let (mut rest, mut out) = (site.clone(), Vec::new());
    for lane in &mut rest.lanes {
        out.extend(lane.pieces.iter().map(|piece| piece.part).filter(rises));
        lane.pieces.retain(|piece| !rises(&piece.part));
    }
    rest.lanes.retain(|lane| !lane.pieces.is_empty());
    if let Some(site) = consolidation::shrunk(problem, &rest) {
        return (site, out);
    }
    let parts = site.lanes.iter().flat_map(|lane| &lane.pieces).map(|piece| piece.part).collect();
    (Site { device: site.device, lanes: Vec::new() }, parts)
}

impl<'a> Repaired<'a> {
    /// Shrinks the first few of the sites to what they need. A site that no part joins keeps its planned shares.
    fn shrink(&mut self, sites: impl Iterator<Item = usize>) {
        let problem = self.floor.problem;
        for at in sites.take(SHRUNK) {
            if let Some(site) = self.floor.site_mut(at)
                && let Some(shrunk) = consolidation::shrunk(problem, site)
            {
                *site = shrunk;
            }
        }
    }

    /// Places every part. Returns `None` if one does not fit.
    fn place_all(&mut self, unplaced: Vec<Part<'a>>) -> Option<()> {
        self.moved = unplaced.len();
        let sites = self.floor.sites.len();
        let sized = sized(&mut self.floor, unplaced).ok()?;
        self.touched.extend(self.floor.sites.iter().skip(sites).map(|site| site.device.name.as_str()));
        for sized in &sized {
            self.touched.insert(construct::add(&mut self.floor, sized).ok()?);
        }
        Some(())
    }

    /// Releases devices that hold little, each for few moves. `cost` is the cost of the current plan.
    fn empty(&mut self, cost: f64) {
        let device_types = cheapest_of_types(self.floor.problem);
        for name in consolidation::least_used(self.floor.sites.iter()).into_iter().take(EMPTIED) {
            let more = self.floor.cost() > cost * (1.0 + SAME_COST);
            let worth = if more { MOVES_NOT_ONE_MORE } else { MOVES_A_DEVICE };
            let site = self.floor.sites.iter().find(|site| site.device.name == name);
            let few = site.is_some_and(|site| {
                let moves = site.lanes.iter().map(|lane| lane.pieces.len()).sum::<usize>();
                site.device.cost > 0.0 && u32::try_from(moves).is_ok_and(|moves| moves <= worth)
            });
            if few && let Some(joined) = consolidation::empty(&mut self.floor, &device_types, name) {
                self.touched.extend(joined);
                self.touched.remove(name);
            }
        }
    }
}
