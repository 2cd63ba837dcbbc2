//! Gives the units that a device has left to whoever is closest to its capacity.

use super::super::demand::SLACK;
use super::super::site::{Floor, Lane, Site};
use crate::interference::Runner;
use crate::problem::Problem;

/// Steps of growth on one device at most.
const STEPS: usize = 64;
/// Devices up to which units are handed out one by one; beyond, all at once in proportion.
const PATIENT_MAX: usize = 64;

/// Capacity over rate of the lane that has least of it; none if somebody is late or not served.
fn least_room(problem: &Problem, site: &Site<'_>) -> Option<(f64, usize)> {
    let times = site.times_us(problem)?;
    if !site.fits() || !site.holds(&times) {
        return None;
    }
    let rooms = site.lanes.iter().zip(&times).map(|(lane, times)| {
        let room = lane.pieces.iter().zip(times).map(|(piece, time)| {
            let busy = lane.duty_us.unwrap_or_else(|| time - piece.fit.profile.load_us(piece.batch));
            1e6 * f64::from(piece.batch) / (busy * piece.part.rate)
        });
        room.fold(f64::INFINITY, f64::min)
    });
    let least = rooms.enumerate().min_by(|left, right| left.1.total_cmp(&right.1));
    least.map(|(at, room)| (room, at))
}

/// The batch of most throughput that still runs twice within the objective beside the neighbours as they are.
fn rebatched(problem: &Problem, site: &mut Site<'_>) {
    for at in 0..site.lanes.len() {
        let Some(lane) = site.lanes.get(at).filter(|lane| lane.duty_us.is_none() && lane.placed.is_none())
        else {
            continue;
        };
        let ([piece], units) = (&lane.pieces[..], lane.units) else { continue };
        let limit = piece.part.workload.slo_us * (1.0 + SLACK);
        let neighbours = site.beside(at);
        let mut best = None;
        for batch in piece.batch..=piece.fit.batch_max {
            let own = Runner { profile: piece.fit.profile, batch, units };
            let Some(alone) = piece.fit.profiled_us(batch, units).filter(|alone| 2.0 * alone <= limit) else {
                break;
            };
            let time = alone * problem.interference().slowdown_beside(&own, &neighbours);
            if 2.0 * time > limit {
                break;
            }
            let capacity = f64::from(batch) / (time - piece.fit.profile.load_us(batch));
            if best.is_none_or(|(most, _)| capacity > most) {
                best = Some((capacity, batch));
            }
        }
        let piece = site.lanes.get_mut(at).and_then(|lane| lane.pieces.first_mut());
        if let (Some((_, batch)), Some(piece)) = (best, piece) {
            piece.batch = batch;
        }
    }
}

/// A lane of the next larger sizes; the size is at most `most` units.
fn grown(lane: &mut Lane<'_>, sizes: &[u32], most: u32) -> bool {
    let next = sizes.iter().copied().find(|size| *size > lane.units).filter(|size| *size <= most);
    next.map(|size| lane.units = size).is_some()
}

fn patiently<'a>(problem: &Problem, site: &Site<'a>) -> Option<Site<'a>> {
    let mut best = site.clone();
    rebatched(problem, &mut best);
    if least_room(problem, &best)?.0 < least_room(problem, site)?.0 {
        best = site.clone();
    }
    for _ in 0..STEPS {
        let (room, at) = least_room(problem, &best)?;
        let free = best.units_free();
        let mut trial = best.clone();
        let lane = trial.lanes.get_mut(at)?;
        let most = lane.units.saturating_add(free);
        if free == 0 || !grown(lane, &site.device.kind.sizes, most) {
            break;
        }
        rebatched(problem, &mut trial);
        match least_room(problem, &trial) {
            Some((more, _)) if more > room => best = trial,
            _ => break,
        }
    }
    Some(best)
}

/// All shares larger in the same proportion.
fn at_once<'a>(problem: &Problem, site: &Site<'a>) -> Option<Site<'a>> {
    let kind = &site.device.kind;
    let used = u64::from(site.units_used().max(1));
    let mut trial = site.clone();
    for lane in &mut trial.lanes {
        let larger = u64::from(lane.units) * u64::from(kind.units) / used;
        lane.units = kind.size_within(u32::try_from(larger).ok()?)?.max(lane.units);
    }
    let better = least_room(problem, &trial)?.0 > least_room(problem, site)?.0;
    better.then_some(trial)
}

/// Uses up what the devices in use have left, those that `takes` names.
pub(super) fn stretched(floor: &mut Floor<'_>, takes: impl Fn(&str) -> bool) {
    let problem = floor.problem;
    let patient = floor.sites.iter().filter(|site| takes(&site.device.name)).count() <= PATIENT_MAX;
    for site in &mut floor.sites {
        // Windows are laid out to the last unit.
        if !takes(&site.device.name) || site.lanes.iter().any(|lane| lane.placed.is_some()) {
            continue;
        }
        let better = if patient { patiently(problem, site) } else { at_once(problem, site) };
        if let Some(better) = better {
            *site = better;
        }
    }
}
