//! Gives the remaining units of a device to the workload closest to its capacity.

use super::super::demand::SLACK;
use super::super::packing::with_most_headroom;
use super::super::site::{Floor, Site};
use crate::interference::Runner;
use crate::problem::Problem;

/// Largest number of growth steps on one device. Each step takes one in `STEP_PART` of the free units.
const STEPS: usize = 256;
const STEP_PART: u32 = 64;
/// Devices up to which units are assigned step by step. With more, all shares grow at once in proportion.
const STEPWISE_MAX: usize = 64;
/// Headrooms that differ by less, relatively, are equal.
const SAME_HEADROOM: f64 = 1e-9;

/// Returns capacity divided by rate for each lane, or `None` if a workload is late or not served.
fn headrooms_of(problem: &Problem, site: &Site<'_>) -> Option<Vec<f64>> {
    let times = site.times_us(problem)?;
    if !site.fits() || !site.holds(&times) {
        return None;
    }
    let headrooms = site.lanes.iter().zip(&times).map(|(lane, times)| {
        let headroom = lane.pieces.iter().zip(times).map(|(piece, time)| {
            let busy = lane.duty_us.unwrap_or_else(|| time - piece.fit.profile.load_us(piece.batch));
            1e6 * f64::from(piece.batch) / (busy * piece.part.rate)
        });
        headroom.fold(f64::INFINITY, f64::min)
    });
    Some(headrooms.collect())
}

/// Returns the least headroom of all lanes, or `None` if a workload is late or not served.
fn least_headroom(problem: &Problem, site: &Site<'_>) -> Option<f64> {
    Some(headrooms_of(problem, site)?.into_iter().fold(f64::INFINITY, f64::min))
}

/// Chooses the batches of most throughput that are still in time under the current contention.
fn rebatched(problem: &Problem, site: &mut Site<'_>) {
    rebatch(problem, site, false);
}

/// Chooses the batches of most throughput that are in time under the current contention. Batches only grow,
/// unless they may `shrink` because of a new gpulet.
pub(super) fn rebatch(problem: &Problem, site: &mut Site<'_>, shrink: bool) {
    for at in 0..site.lanes.len() {
        let co_located = site.co_located_with(at);
        // A lane with a window keeps the batch that fills it.
        let Some(lane) = site.lane_mut(at).filter(|lane| lane.placed.is_none()) else { continue };
        if lane.duty_us.is_some() {
            with_most_headroom(problem, lane, &co_located);
            continue;
        }
        // A current plan may have several slots without a cycle; only the validator refuses it.
        let (units, [piece]) = (lane.units, &mut lane.pieces[..]) else { continue };
        let limit = piece.part.workload.slo_us * (1.0 + SLACK);
        let mut best = None;
        let first = if shrink { 1 } else { piece.batch };
        for batch in first..=piece.fit.batch_max {
            let own = Runner { profile: piece.fit.profile, batch, units };
            let Some(alone) = piece.fit.profiled_us(batch, units).filter(|alone| 2.0 * alone <= limit) else {
                break;
            };
            let time = alone * problem.interference().slowdown_with(&own, &co_located);
            if 2.0 * time > limit {
                break;
            }
            let capacity = f64::from(batch) / (time - piece.fit.profile.load_us(batch));
            if best.is_none_or(|(most, _)| capacity > most) {
                best = Some((capacity, batch));
            }
        }
        if let Some((_, batch)) = best {
            piece.batch = batch;
        }
    }
}

/// Returns the site with lane `at` on a larger size that increases its headroom. Every other lane keeps its own
/// previous headroom or that of lane `at`, whichever is less.
fn larger<'a>(problem: &Problem, site: &Site<'a>, current: &[f64], at: usize) -> Option<Site<'a>> {
    let (sizes, free) = (&site.device.device_type.sizes, site.units_free());
    let Some(headroom) = current.get(at) else {
        invariant::violated!("placement.lane_without_headroom");
        return None;
    };
    let before = site.lane(at)?.units;
    let most = before.saturating_add(free);
    let mut more = free.div_ceil(STEP_PART).max(1);
    loop {
        let wanted = before.saturating_add(more).min(most);
        let units = sizes.iter().copied().find(|size| *size >= wanted).filter(|size| *size <= most)?;
        let mut trial = site.clone();
        trial.lane_mut(at)?.units = units;
        rebatched(problem, &mut trial);
        let keeps = |(before, after): (&f64, &f64)| *after >= before.min(*headroom) * (1.0 - SAME_HEADROOM);
        let better = headrooms_of(problem, &trial).is_some_and(|headrooms| {
            current.iter().zip(&headrooms).all(keeps)
                && headrooms.get(at).is_some_and(|after| *after > headroom * (1.0 + SAME_HEADROOM))
        });
        if better {
            return Some(trial);
        }
        // Times fall in steps: one more unit may change nothing where several do.
        more = units.saturating_sub(before).saturating_mul(2);
        if units >= most {
            return None;
        }
    }
}

fn stepwise_stretch<'a>(problem: &Problem, site: &Site<'a>) -> Option<Site<'a>> {
    let mut best = site.clone();
    rebatched(problem, &mut best);
    if least_headroom(problem, &best)
        .is_none_or(|headroom| least_headroom(problem, site).is_some_and(|before| headroom < before))
    {
        best = site.clone();
    }
    // Lanes that no remaining share makes faster.
    let mut sated = vec![false; best.lanes.len()];
    for _ in 0..STEPS {
        let headrooms = headrooms_of(problem, &best)?;
        let hungry = headrooms.iter().enumerate().filter(|(at, _)| sated.get(*at) == Some(&false));
        let Some((at, _)) = hungry.min_by(|left, right| left.1.total_cmp(right.1)) else { break };
        if best.units_free() == 0 {
            break;
        }
        match larger(problem, &best, &headrooms, at) {
            Some(next) => best = next,
            None => match sated.get_mut(at) {
                Some(sated) => *sated = true,
                None => invariant::violated!("placement.sated_lane_unknown"),
            },
        }
    }
    Some(best)
}

/// Grows all shares in the same proportion.
fn at_once<'a>(problem: &Problem, site: &Site<'a>) -> Option<Site<'a>> {
    let device_type = &site.device.device_type;
    let used = u64::from(site.units_used().max(1));
    let mut trial = site.clone();
    for lane in &mut trial.lanes {
        let larger = u64::from(lane.units) * u64::from(device_type.units) / used;
        lane.units = device_type.size_within(u32::try_from(larger).ok()?)?.max(lane.units);
    }
    rebatched(problem, &mut trial);
    let better = least_headroom(problem, &trial)? > least_headroom(problem, site)?;
    better.then_some(trial)
}

/// Assigns the remaining units of the used devices that `takes` accepts.
pub(super) fn stretched(floor: &mut Floor<'_>, takes: impl Fn(&str) -> bool) {
    let problem = floor.problem;
    let stepwise = floor.sites.iter().filter(|site| takes(&site.device.name)).count() <= STEPWISE_MAX;
    for site in &mut floor.sites {
        // Windows fill the device to the last unit.
        if !takes(&site.device.name) || site.lanes.iter().any(|lane| lane.placed.is_some()) {
            continue;
        }
        let better = if stepwise { stepwise_stretch(problem, site) } else { at_once(problem, site) };
        if let Some(better) = better {
            *site = better;
        }
    }
}
