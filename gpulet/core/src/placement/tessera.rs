//! The default policy. It uses the cheapest devices that keep every objective, gives their free units to the
//! workloads as headroom, and moves as little as possible.
//!
//! Parts go, largest share first, where all shares together grow least: on their own gpulet, or in the cycle of a
//! gpulet in use, so that light models share. Devices whose contents fit on others are emptied. Small problems are
//! also solved by branch and bound and by the published algorithms, and the best plan that passes the validator wins.
//! Up to six workloads on up to eight equal devices are also covered by pairs of gpulets ([`cover`]).
//! A second gpulet of a workload on a device must add headroom for all workloads. Remaining units go to the workload
//! closest to its capacity. Large problems (above 64 parts) are not searched.
//!
//! The policy continues the current plan. Devices that keep every objective and rate stay exactly as they are.
//! Changes are planned on as few other devices as possible. If something changed, a device is released if that takes
//! at most 16 moves, or 3 if it only compensates for an additional device. A changed device is repartitioned with
//! everything on it, into as few gpulets as hold it. A plan from scratch is used only if it is cheaper and worth its
//! loads ([`objective`]). For a large problem it is not computed while few workloads have to move.

mod consolidation;
pub(super) mod construct;
mod copies;
mod cover;
mod efficiency;
mod familiar;
mod joining;
mod patterns;
mod repair;
mod current_plan;
mod stretch;
mod objective;

use std::collections::BTreeMap;

use self::repair::Repaired;
use super::Placement;
use super::demand::{Part, Unplaced, parts};
use super::search::{Limits, search, sized};
use super::site::Floor;
use super::{FastGshare, fast_gshare, gpulet, igniter, temporal};
use crate::validate::validate;
use crate::plan::Plan;
use crate::problem::Problem;

/// Parts up to which all published algorithms are tried and parts are split.
const PUBLISHED_MAX: usize = 64;
/// Parts up to which algorithms are tried whose time is proportional to parts times devices.
const QUICK_MAX: usize = 256;
/// Parts up to which the search also accepts plans of the same cost with more headroom. Beyond, up to
/// `PUBLISHED_MAX`, it accepts only cheaper plans.
const SEARCHED_MAX: usize = 24;
/// Limits of a search with one gpulet per part while a plan is in force.
const QUICK: Limits = Limits { nodes: 4_000, looks: 80_000, cycles: false, below: f64::INFINITY };
/// Limits of a longer search, up to a second. `exact` finds nothing cheaper within the same number of steps.
const THOROUGH: Limits = Limits { nodes: 20_000, looks: 1_000_000, ..QUICK };
/// Limits of the search in which parts may also share a gpulet.
const CYCLES: Limits = Limits { nodes: 200, cycles: true, ..QUICK };
/// Fractions of its solo rate that a piece is planned with when parts are split. The remainder covers interference.
const TRUST: &[f64] = &[1.0, 0.85];
/// Cost relative to the cheapest candidate up to which the policy tries to empty a candidate's devices.
const NEAR: f64 = 1.2;
/// A large current plan is continued without alternatives while at most one in this many workloads has to move.
const MOVED_OF: usize = 20;
/// Costs that differ by less are equal.
const SAME_COST: f64 = 1e-9;

/// The default policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tessera;

/// A plan that passed the validator.
struct Candidate {
    plan: Plan,
    cost: f64,
    headroom: f64,
}

fn validated(problem: &Problem, plan: Plan) -> Option<Candidate> {
    let validation = validate(problem, &plan);
    let headroom = validation.headroom(problem).unwrap_or(f64::INFINITY);
    validation.is_sound().then_some(Candidate { plan, cost: validation.cost, headroom })
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
        if problem.allows_time_windows() {
            floors.extend(fast_gshare::filled(problem, &FastGshare::default()));
        }
        let efficient = efficiency::efficient(problem, &wanted);
        let split = TRUST.iter().filter_map(|trust| efficiency::split(&efficient, *trust));
        floors.extend(split.filter_map(|pieces| {
            let mut start = Floor::new(problem);
            let pieces = sized(&mut start, pieces).ok()?;
            construct::filled(&start, &pieces).ok()
        }));
    }
    let unplaced = constructed.map(|floor| floors.push(floor)).err();
    let searched = count <= SEARCHED_MAX || (count <= PUBLISHED_MAX && floors.is_empty());
    if let Some(whole) = whole.ok().filter(|_| searched) {
        let found = [QUICK, CYCLES].into_iter().filter_map(|limits| search(&start, &whole, limits));
        floors.extend(found.map(|found| found.floor));
    }
    unplaced.filter(|_| floors.is_empty()).map_or(Ok(floors), Err)
}

/// Returns what branch and bound finds below a cost.
fn cheaper<'a>(problem: &'a Problem, wanted: Vec<Part<'a>>, limits: Limits) -> Option<Floor<'a>> {
    let mut start = Floor::new(problem);
    let whole = sized(&mut start, wanted).ok()?;
    search(&start, &whole, limits).map(|found| found.floor)
}

/// The current plan, continued.
struct Continued {
    candidate: Candidate,
    /// Whether no workload has changed and the whole plan still holds.
    stands: bool,
    /// Whether all but a few workloads stay in place.
    few: bool,
    /// Whether a workload needs more than it had.
    rising: bool,
}

/// Continues the current plan. Returns `None` without one, or if no continuation is sound.
fn continued(problem: &Problem) -> Option<Continued> {
    let repaired = repair::repaired(problem)?;
    let few = repaired.moved.saturating_mul(MOVED_OF) <= problem.workloads().len();
    let saves = || {
        let cost = problem.current().and_then(|current| cost(problem, current));
        cost.is_none_or(|cost| repaired.floor.cost() < cost * (1.0 - SAME_COST))
    };
    // If rates only fell and no device can be saved, nothing has to change.
    if repaired.suffices && !saves() {
        let current = problem.current().and_then(|current| validated(problem, current.clone()));
        if let Some(current) = current {
            return Some(Continued { candidate: current, stands: repaired.stands, few, rising: false });
        }
    }
    let plan = validated(problem, repaired.plan(true)).or_else(|| validated(problem, repaired.plan(false)));
    let Repaired { stands, rising, .. } = repaired;
    plan.map(|candidate| Continued { candidate, stands, few, rising })
}

/// Returns the cost of a plan's devices, or `None` if one of them was removed.
fn cost(problem: &Problem, plan: &Plan) -> Option<f64> {
    let devices: BTreeMap<&str, f64> =
        problem.devices().iter().map(|device| (device.name.as_str(), device.cost)).collect();
    plan.devices().into_iter().map(|name| devices.get(name).copied()).sum()
}

/// Returns the best plan that ignores the current one. No plan costs less than `bound`.
fn afresh(problem: &Problem, bound: f64, limits: Limits) -> Result<Candidate, Unplaced> {
    let wanted = parts(problem);
    let small = wanted.len() <= PUBLISHED_MAX;
    let mut floors = match floors(problem) {
        Ok(floors) => floors,
        Err(unplaced) => vec![cover::covered(problem, &wanted, bound, f64::INFINITY).ok_or(unplaced)?],
    };
    floors.sort_by(|left, right| left.cost().total_cmp(&right.cost()));
    if !small {
        floors.truncate(1);
    }
    let least = |floors: &[Floor<'_>]| floors.first().map_or(0.0, Floor::cost);
    let may_be_cheaper = |floors: &[Floor<'_>]| least(floors) > bound * (1.0 + SAME_COST);
    if may_be_cheaper(&floors) {
        let near = least(&floors) * NEAR;
        floors.iter_mut().filter(|floor| floor.cost() <= near).for_each(consolidation::emptied);
        floors.sort_by(|left, right| left.cost().total_cmp(&right.cost()));
        floors.splice(0..0, floors.first().and_then(consolidation::tightened));
    }
    if small && may_be_cheaper(&floors) {
        let below = least(&floors);
        floors.splice(0..0, cheaper(problem, wanted.clone(), Limits { below, ..limits }));
    }
    if small && may_be_cheaper(&floors) {
        let below = least(&floors);
        floors.splice(0..0, cover::covered(problem, &wanted, bound, below));
    }
    if small {
        let least = least(&floors);
        let cheapest = floors.iter().filter(|floor| floor.cost() <= least * (1.0 + SAME_COST));
        let joined: Vec<Floor<'_>> = cheapest.filter_map(joining::joined).collect();
        floors.splice(0..0, joined);
    }
    let mut best: Option<Candidate> = None;
    for floor in floors {
        if best.as_ref().is_some_and(|best| floor.cost() > best.cost * (1.0 + SAME_COST)) {
            break;
        }
        if let Some(found) =
            finished(problem, floor).filter(|found| best.as_ref().is_none_or(|best| found.beats(best)))
        {
            best = Some(found);
        }
    }
    let first = || problem.workloads().first().map_or(String::new(), |workload| workload.name.clone());
    best.ok_or_else(|| Unplaced { workload: first() })
}

/// Gives the free units of a floor to its lanes, and what they cannot use to copies. Returns the plan with most headroom
/// that passes the validator.
fn finished(problem: &Problem, floor: Floor<'_>) -> Option<Candidate> {
    let mut stretched = floor.clone();
    stretch::stretched(&mut stretched, |_| true);
    let mut plain = vec![stretched];
    if parts(problem).len() <= PUBLISHED_MAX {
        let copied: Vec<Floor<'_>> = plain.iter().chain([&floor]).filter_map(copies::copied).collect();
        plain.extend(copied.into_iter().map(|mut floor| {
            stretch::stretched(&mut floor, |_| true);
            floor
        }));
    }
    let mut best: Option<Candidate> = None;
    for mut floor in plain {
        familiar::named(&mut floor);
        let found = validated(problem, floor.plan());
        if let Some(found) = found.filter(|found| best.as_ref().is_none_or(|best| found.beats(best))) {
            best = Some(found);
        }
    }
    best.or_else(|| validated(problem, floor.plan()))
}

impl Placement for Tessera {
    const NAME: &'static str = "tessera";
    const ABOUT: &'static str = "the default: fewest devices, then most headroom, with few moves";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        let parts = parts(problem);
        let small = parts.len() <= PUBLISHED_MAX;
        let continued = continued(problem);
        let stays = |continued: &&Continued| continued.stands || (continued.few && !small);
        if let Some(continued) = continued.as_ref().filter(stays) {
            return Ok(continued.candidate.plan.clone());
        }
        let bound = if small { efficiency::least_cost_of_work(problem, &parts) } else { 0.0 };
        let Some((current, Continued { candidate: continued, rising, .. })) =
            problem.current().zip(continued)
        else {
            return afresh(problem, bound, THOROUGH).map(|found| found.plan);
        };
        if continued.cost <= bound * (1.0 + SAME_COST) {
            return Ok(continued.plan);
        }
        let afresh = afresh(problem, bound, QUICK).ok().filter(|afresh| afresh.is_cheaper(&continued));
        let worth_it = |afresh: &Candidate| afresh.is_worth_its_loads(current, &continued, rising);
        Ok(afresh.filter(worth_it).unwrap_or(continued).plan)
    }
}
