//! Finds the least shares and the batches that keep every workload on a device in time under contention.
//!
//! A larger share of one gpulet means more cache traffic and power for the others, so shares only have to grow. The
//! algorithm starts from the smallest shares and grows those of late workloads. It ends at the least sufficient
//! shares, or beyond the device.

use super::demand::{Fit, Part, SLACK};
use super::site::{Lane, Piece, Site};
use crate::interference::{CoLocated, Load, Runner};
use crate::problem::Problem;

/// Largest number of rounds until shares and batches are stable. They grow in all but a few rounds, so devices of
/// many units may need many.
const ROUNDS: usize = 128;
/// Number of halvings in the search for the highest rates that a cycle serves.
const HALVINGS: u32 = 8;
/// Largest factor on its rates that a cycle is tuned for.
const GROWTH_MAX: f64 = 64.0;
/// Largest number of slots in a cycle.
pub(super) const SLOTS_MAX: usize = 16;

/// Returns the time of a batch under contention, or `None` outside the profile.
fn time_us(problem: &Problem, fit: &Fit<'_>, batch: u32, units: u32, co_located: &CoLocated) -> Option<f64> {
    let alone = fit.profiled_us(batch, units)?;
    let own = Runner { profile: fit.profile, batch, units };
    Some(alone * problem.interference().slowdown_with(&own, co_located))
}

/// Returns the smallest batch that keeps up with the rate, if it runs twice within the objective.
fn keeping_up(problem: &Problem, piece: &Piece<'_>, units: u32, co_located: &CoLocated) -> Option<u32> {
    let Piece { part, fit, .. } = piece;
    for batch in 1..=fit.batch_max {
        let keeps_up = |time: f64| part.rate * (time - fit.profile.load_us(batch)) <= 1e6 * f64::from(batch);
        // Co-located loads only add to the solo time, which is quicker to look up.
        let alone = fit.profiled_us(batch, units)?;
        if 2.0 * alone > part.workload.slo_us * (1.0 + SLACK) {
            return None;
        }
        if !keeps_up(alone) {
            continue;
        }
        let time = time_us(problem, fit, batch, units, co_located)?;
        if 2.0 * time > part.workload.slo_us * (1.0 + SLACK) {
            return None;
        }
        if keeps_up(time) {
            return Some(batch);
        }
    }
    None
}

/// Returns the longest cycle in which the piece keeps its objective. Its batch is what arrives in a cycle, so a
/// longer cycle means a larger batch.
fn longest_us(problem: &Problem, piece: &Piece<'_>, units: u32, co_located: &CoLocated) -> Option<f64> {
    let Piece { part, fit, .. } = piece;
    let left_us = |batch: u32| Some(part.workload.slo_us - time_us(problem, fit, batch, units, co_located)?);
    // One more row is needed as soon as a cycle is longer than the previous rows take to arrive.
    let reached = |batch: u32, left: f64| {
        left > 0.0 && (batch == 1 || f64::from(batch.saturating_sub(1)) * 1e6 < left * part.rate)
    };
    let mut best = left_us(1).filter(|left| reached(1, *left)).map(|left| (1, left))?;
    let (mut low, mut high) = (1, fit.batch_max);
    while low < high {
        let middle = low.saturating_add(high).div_ceil(2);
        match left_us(middle).filter(|left| reached(middle, *left)) {
            Some(left) => (low, best) = (middle, (middle, left)),
            None => high = middle.saturating_sub(1),
        }
    }
    let (batch, left) = best;
    Some(left.min(f64::from(batch) * 1e6 / part.rate))
}

/// Returns the longest cycle that keeps every objective, if all slots fit into it. A longer cycle has larger batches
/// and a lower cost per request.
fn cycle(problem: &Problem, lane: &Lane<'_>, units: u32, co_located: &CoLocated) -> Option<(f64, Vec<u32>)> {
    let mut duty_us = f64::INFINITY;
    for piece in &lane.pieces {
        duty_us = duty_us.min(longest_us(problem, piece, units, co_located)?);
    }
    let mut left_us = duty_us;
    let mut batches = Vec::with_capacity(lane.pieces.len());
    for piece in &lane.pieces {
        let batch = Fit::rows_in(piece.part.rate, duty_us);
        let time = time_us(problem, &piece.fit, batch, units, co_located)?;
        left_us -= time;
        if left_us < 0.0 || duty_us + time > piece.part.workload.slo_us * (1.0 + SLACK) {
            return None;
        }
        batches.push(batch);
    }
    Some((duty_us, batches))
}

/// Finds the cycle that allows the largest common growth of its rates under contention, on the units of the lane.
pub(super) fn with_most_headroom(problem: &Problem, lane: &mut Lane<'_>, co_located: &CoLocated) {
    let tuned = |times: f64| {
        let mut grown = lane.clone();
        grown.pieces.iter_mut().for_each(|piece| piece.part.rate *= times);
        cycle(problem, &grown, lane.units, co_located)
    };
    let mut best = None;
    let (mut low, mut high) = (1.0, 1.0);
    while high <= GROWTH_MAX {
        let Some(found) = tuned(high) else { break };
        (low, high, best) = (high, 2.0 * high, Some(found));
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        match tuned(middle) {
            Some(found) => (low, best) = (middle, Some(found)),
            None => high = middle,
        }
    }
    // No cycle serves its rates under this contention, so it keeps the one that it has.
    let Some((duty_us, batches)) = best else { return };
    lane.duty_us = Some(duty_us);
    lane.pieces.iter_mut().zip(batches).for_each(|(piece, batch)| piece.batch = batch);
}

/// Chooses the batches on `units` units, and the cycle for several pieces. Returns whether that is possible.
fn tune_at(problem: &Problem, lane: &mut Lane<'_>, units: u32, co_located: &CoLocated) -> bool {
    if let [piece] = &mut lane.pieces[..] {
        let Some(batch) = keeping_up(problem, piece, units, co_located) else { return false };
        piece.batch = batch;
        lane.duty_us = None;
    } else {
        let Some((duty, batches)) = cycle(problem, lane, units, co_located) else { return false };
        lane.duty_us = Some(duty);
        lane.pieces.iter_mut().zip(batches).for_each(|(piece, batch)| piece.batch = batch);
    }
    lane.units = units;
    true
}

/// Grows the shares of the site until every batch is in time. Returns `None` if that takes more than `most` units.
pub(super) fn settled<'a>(problem: &Problem, mut site: Site<'a>, most: u32) -> Option<Site<'a>> {
    let device_type = &site.device.device_type;
    let mut loads: Vec<Vec<Load>> = site.lanes.iter().map(Lane::loads).collect();
    for _ in 0..ROUNDS {
        let mut changed = false;
        for at in 0..site.lanes.len() {
            // Shares that are too large already, or that grew, do not fit.
            let units_left = most.min(device_type.units).checked_sub(site.units_used())?;
            let others = loads.iter().enumerate().filter(|(other, _)| *other != at);
            let co_located = CoLocated::of(others.map(|(_, loads)| loads.as_slice()));
            let lane = site.lane_mut(at)?;
            let from = device_type.sizes.partition_point(|size| *size < lane.units);
            let to = device_type.sizes.partition_point(|size| *size <= lane.units.saturating_add(units_left));
            let Some(sizes) = device_type.sizes.get(from..to) else {
                invariant::violated!("placement.sizes_out_of_order");
                return None;
            };
            let before = lane.clone();
            least_of(sizes, |size| tune_at(problem, lane, size, &co_located))?;
            if !alike(&before, lane) {
                changed = true;
                match loads.get_mut(at) {
                    Some(loads) => *loads = lane.loads(),
                    None => invariant::violated!("placement.lane_without_loads"),
                }
            }
        }
        if !changed {
            break;
        }
    }
    site.is_sound(problem).then_some(site)
}

/// Returns the first size for which `does` returns true, and calls it for that size last. Searches by doubling, then
/// by bisection. A larger size suffices too, except for the power that it draws.
fn least_of(sizes: &[u32], mut does: impl FnMut(u32) -> bool) -> Option<u32> {
    // No size is left between the current one and the largest that fits.
    let last = sizes.len().checked_sub(1)?;
    let mut tried = |at: usize| {
        let Some(size) = sizes.get(at).copied() else {
            invariant::violated!("placement.unknown_size");
            return None;
        };
        does(size).then_some(size)
    };
    let mut failed = None;
    let mut at = 0_usize;
    while tried(at).is_none() {
        if at == last {
            return None;
        }
        failed = Some(at);
        at = at.saturating_mul(2).saturating_add(1).min(last);
    }
    let (mut low, mut high) = (failed.map_or(0, |failed| failed.saturating_add(1)), at);
    while low < high {
        let middle = low.midpoint(high);
        if tried(middle).is_some() { high = middle } else { low = middle.saturating_add(1) }
    }
    tried(high)
}

fn alike(before: &Lane<'_>, after: &Lane<'_>) -> bool {
    let batches = before.pieces.iter().zip(&after.pieces);
    before.units == after.units
        && before.duty_us == after.duty_us
        && batches.into_iter().all(|(before, after)| before.batch == after.batch)
}

/// Returns the site with the part on its own gpulet, on at most `most` units in total.
pub(super) fn added<'a>(
    problem: &'a Problem,
    site: &Site<'a>,
    part: Part<'a>,
    most: u32,
) -> Option<Site<'a>> {
    let fit = part.on(problem, &site.device.device_type)?;
    let least = site.device.device_type.size_least();
    if site.units_free() < least {
        return None;
    }
    let mut trial = site.clone();
    trial.lanes.push(Lane::dedicated(Piece { part, fit, batch: 1 }, least));
    trial.fits().then(|| settled(problem, trial, most))?
}

/// Returns the site with the part in the cycle of one of its gpulets, on at most `most` units in total.
pub(super) fn within<'a>(
    problem: &'a Problem,
    site: &Site<'a>,
    lane: usize,
    part: Part<'a>,
    most: u32,
) -> Option<Site<'a>> {
    let fit = part.on(problem, &site.device.device_type)?;
    let mut trial = site.clone();
    let joined = trial.lane_mut(lane)?;
    let held = |piece: &Piece<'_>| piece.part.workload.name == part.workload.name;
    if joined.pieces.len() >= SLOTS_MAX || joined.pieces.iter().any(held) {
        return None;
    }
    joined.pieces.push(Piece { part, fit, batch: 1 });
    trial.fits().then(|| settled(problem, trial, most))?
}

/// Places the part on an empty device.
pub(super) fn alone<'a>(
    problem: &'a Problem,
    device: &'a crate::problem::Device,
    part: Part<'a>,
) -> Option<Site<'a>> {
    added(problem, &Site { device, lanes: Vec::new() }, part, device.device_type.units)
}

/// Returns the largest part of a rate that a whole device serves solo, in the batch that serves most.
pub(super) fn saturating<'a>(
    problem: &'a Problem,
    device: &'a crate::problem::Device,
    part: Part<'a>,
) -> Option<Site<'a>> {
    let fit = part.on(problem, &device.device_type)?;
    let units = device.device_type.size_most();
    let (batch, time) =
        fit.largest_batch(units, |_, time| 2.0 * time <= part.workload.slo_us * (1.0 + SLACK))?;
    let rate = (1e6 * f64::from(batch) / (time - fit.profile.load_us(batch))).min(part.rate);
    let lanes = vec![Lane::dedicated(Piece { part: part.at_rate(rate), fit, batch }, units)];
    let site = Site { device, lanes };
    site.is_sound(problem).then_some(site)
}
