//! Our own default: the cheapest devices that keep every promise, then as much head-room as they have to give, and no
//! move without need.
//!
//! Parts go, largest share first, where they make all shares together grow least: on a gpulet of their own, or in the
//! cycle of one in use, which is how light models share. Devices that can be emptied into others are emptied. Small
//! problems are also searched by branch and bound and given to the published algorithms, and the best plan of all
//! that the judge finds sound is taken; a plan in force that is as cheap stays. Units left over go to whoever is
//! closest to its capacity. Large problems (above 64 parts) are not searched; where few rates changed since the plan in force,
//! only the devices concerned are planned again.

pub(super) mod construct;
mod familiar;
mod stretch;

use super::Placement;
use super::demand::{Unplaced, parts};
use super::search::{Limits, search, sized};
use super::site::Floor;
use super::{fast_gshare, gpulet, igniter, temporal};
use crate::check::check;
use crate::plan::Plan;
use crate::problem::Problem;

/// Parts up to which all published algorithms are asked too, and parts are cut.
const PUBLISHED_MAX: usize = 64;
/// Parts up to which those are asked that take time in proportion to parts times devices.
const QUICK_MAX: usize = 256;
/// Parts up to which plans are searched for.
const SEARCHED_MAX: usize = 24;
/// Steps of the search with a gpulet for each part.
const NODES: u64 = 4_000;
/// Steps of the search in which parts may also share a gpulet by turns.
const CYCLE_NODES: u64 = 200;
/// How much of what a piece serves alone it is trusted with, where parts are cut into pieces: neighbours cost some.
const TRUST: &[f64] = &[1.0, 0.85];
/// Cost over the least of all up to which a plan is tried to be made cheaper.
const NEAR: f64 = 1.2;
/// Costs that differ by less are the same.
const SAME_COST: f64 = 1e-9;

/// The default policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tessera;

/// A plan that the judge finds sound.
struct Candidate {
    plan: Plan,
    cost: f64,
    head_room: f64,
}

fn judged(problem: &Problem, plan: Plan) -> Option<Candidate> {
    let judgement = check(problem, &plan);
    let head_room = judgement.head_room(problem).unwrap_or(f64::INFINITY);
    judgement.is_sound().then_some(Candidate { plan, cost: judgement.cost, head_room })
}

impl Candidate {
    fn beats(&self, other: &Self) -> bool {
        let cheaper = self.cost < other.cost - SAME_COST * other.cost.max(1.0);
        let as_cheap = self.cost <= other.cost + SAME_COST * other.cost.max(1.0);
        cheaper || (as_cheap && self.head_room > other.head_room)
    }
}

fn floors(problem: &Problem) -> Result<Vec<Floor<'_>>, Unplaced> {
    let wanted = parts(problem);
    let count = wanted.len();
    let mut floors = Vec::new();
    let mut start = Floor::new(problem);
    let whole = sized(&mut start, wanted.clone());
    let constructed = whole.as_ref().map_err(Clone::clone).and_then(|whole| construct::filled(&start, whole));
    if count <= QUICK_MAX {
        floors.extend(igniter::filled(problem));
        floors.extend(temporal::filled(problem));
    }
    if count <= PUBLISHED_MAX {
        floors.extend(gpulet::filled(problem));
        floors.extend(fast_gshare::filled(problem, None));
        let efficient = construct::efficient(problem, &wanted);
        let cut = TRUST.iter().filter_map(|trust| construct::cut(&efficient, *trust));
        floors.extend(cut.filter_map(|pieces| {
            let mut start = Floor::new(problem);
            let pieces = sized(&mut start, pieces).ok()?;
            construct::filled(&start, &pieces).ok()
        }));
    }
    if let Some(whole) = whole.ok().filter(|_| count <= SEARCHED_MAX) {
        let dedicated = search(&start, &whole, Limits { nodes: NODES, cycles: false });
        let cycles = search(&start, &whole, Limits { nodes: CYCLE_NODES, cycles: true });
        floors.extend([dedicated, cycles].into_iter().flatten().map(|found| found.floor));
    }
    match constructed {
        Ok(floor) => floors.push(floor),
        Err(unplaced) if floors.is_empty() => return Err(unplaced),
        Err(_) => {}
    }
    Ok(floors)
}

impl Placement for Tessera {
    const NAME: &'static str = "tessera";
    const ABOUT: &'static str = "our default: fewest devices, then most head-room, moving little";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        let resumed = familiar::resumed(problem).and_then(|(floor, touched)| {
            let stretch = |floor: &mut Floor<'_>| stretch::stretched(floor, |site| touched.contains(site));
            finished(problem, floor, stretch)
        });
        let current = || problem.current().and_then(|plan| judged(problem, plan.clone()));
        if let Some(resumed) = resumed {
            let dearer = familiar::cost(problem).is_some_and(|current| current < resumed.cost * (1.0 - SAME_COST));
            let kept = if dearer { current() } else { None };
            return Ok(kept.unwrap_or(resumed).plan);
        }
        let mut floors = floors(problem)?;
        floors.sort_by(|left, right| left.cost().total_cmp(&right.cost()));
        if parts(problem).len() > PUBLISHED_MAX {
            floors.truncate(1);
        }
        let least = floors.first().map_or(0.0, Floor::cost);
        for floor in floors.iter_mut().filter(|floor| floor.cost() <= least * NEAR) {
            construct::emptied(floor);
        }
        floors.sort_by(|left, right| left.cost().total_cmp(&right.cost()));
        let mut best: Option<Candidate> = None;
        for floor in floors {
            if best.as_ref().is_some_and(|best| floor.cost() > best.cost * (1.0 + SAME_COST)) {
                break;
            }
            let found = finished(problem, floor, |floor| {
                stretch::stretched(floor, |_| true);
                familiar::named(floor);
            });
            if let Some(found) = found.filter(|found| best.as_ref().is_none_or(|best| found.beats(best))) {
                best = Some(found);
            }
        }
        let first = || problem.workloads().first().map_or(String::new(), |workload| workload.name.clone());
        let best = best.ok_or_else(|| Unplaced { workload: first() })?;
        let kept = current().filter(|current| current.cost <= best.cost + SAME_COST * best.cost.max(1.0));
        Ok(kept.map_or(best.plan, |kept| kept.plan))
    }
}

/// The plan of a floor with all that its devices have to give, if the judge agrees.
fn finished<'a>(problem: &Problem, mut floor: Floor<'a>, stretch: impl Fn(&mut Floor<'a>)) -> Option<Candidate> {
    let tight = floor.clone();
    stretch(&mut floor);
    judged(problem, floor.plan()).or_else(|| judged(problem, tight.plan()))
}
