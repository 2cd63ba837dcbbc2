//! The least shares and the batches that keep everybody on a device in time beside everybody else.
//!
//! More share for one means more cache traffic and power for the others, so shares only ever have to grow: starting
//! from the smallest and growing whoever is late ends at the least shares that do, or beyond the device.

use super::demand::{Fit, Part, SLACK};
use super::site::{Lane, Piece, Site};
use crate::interference::{Load, Runner};
use crate::problem::Problem;

/// Rounds until shares and batches rest; they grow in all but a few, so devices of many units may need many.
const ROUNDS: usize = 128;
/// Halvings in the search for the longest cycle.
const HALVINGS: usize = 12;
/// Slots of a cycle at most.
pub(super) const SLOTS_MAX: usize = 16;

/// Time of a batch beside neighbours; none where the profile has no answer.
fn time_us(problem: &Problem, fit: &Fit<'_>, batch: u32, units: u32, neighbours: &[&[Load]]) -> Option<f64> {
    let alone = fit.profiled_us(batch, units)?;
    let own = Runner { profile: fit.profile, batch, units };
    Some(alone * problem.interference().slowdown(&own, neighbours))
}

/// The smallest batch that keeps up with the rate, if it runs twice within the objective.
fn keeping_up(problem: &Problem, piece: &Piece<'_>, units: u32, neighbours: &[&[Load]]) -> Option<u32> {
    let Piece { part, fit, .. } = piece;
    for batch in 1..=fit.batch_max {
        let keeps_up = |time: f64| part.rate * (time - fit.profile.load_us(batch)) <= 1e6 * f64::from(batch);
        // Neighbours only add to the time alone, which is quicker to look up.
        let alone = fit.profiled_us(batch, units)?;
        if 2.0 * alone > part.workload.slo_us * (1.0 + SLACK) {
            return None;
        }
        if !keeps_up(alone) {
            continue;
        }
        let time = time_us(problem, fit, batch, units, neighbours)?;
        if 2.0 * time > part.workload.slo_us * (1.0 + SLACK) {
            return None;
        }
        if keeps_up(time) {
            return Some(batch);
        }
    }
    None
}

/// Batches and times of one cycle of that length; none if a batch is too large or somebody late.
fn turns(
    problem: &Problem,
    pieces: &[Piece<'_>],
    units: u32,
    duty_us: f64,
    neighbours: &[&[Load]],
) -> Option<Vec<(u32, f64)>> {
    let turn = |piece: &Piece<'_>| {
        let batch = Fit::rows_in(piece.part.rate, duty_us);
        if batch > piece.fit.batch_max {
            return None;
        }
        let time = time_us(problem, &piece.fit, batch, units, neighbours)?;
        (duty_us + time <= piece.part.workload.slo_us * (1.0 + SLACK)).then_some((batch, time))
    };
    pieces.iter().map(turn).collect()
}

/// The longest cycle that keeps every objective, if all turns fit into it: the longer, the larger the batches and
/// the less each request costs.
fn cycle(problem: &Problem, lane: &Lane<'_>, units: u32, neighbours: &[&[Load]]) -> Option<(f64, Vec<u32>)> {
    let try_for = |duty: f64| turns(problem, &lane.pieces, units, duty, neighbours);
    let mut longest = f64::INFINITY;
    for piece in &lane.pieces {
        let least = time_us(problem, &piece.fit, 1, units, neighbours)?;
        longest = longest.min(piece.part.workload.slo_us - least);
    }
    if longest <= 0.0 {
        return None;
    }
    let mut low = 0.0;
    let mut high = longest;
    let mut best = try_for(high).map(|turns| (high, turns));
    for _ in 0..HALVINGS {
        if best.as_ref().is_some_and(|(duty, _)| *duty >= high) {
            break;
        }
        let middle = f64::midpoint(low, high);
        match try_for(middle) {
            Some(turns) => {
                low = middle;
                best = Some((middle, turns));
            }
            None => high = middle,
        }
    }
    let (duty, turns) = best?;
    let busy: f64 = turns.iter().map(|(_, time)| time).sum();
    (busy <= duty).then(|| (duty, turns.into_iter().map(|(batch, _)| batch).collect()))
}

/// Batches, and the cycle if there are several, on so many units; whether there are any.
fn tune_at(problem: &Problem, lane: &mut Lane<'_>, units: u32, neighbours: &[&[Load]]) -> bool {
    if let [piece] = &mut lane.pieces[..] {
        let Some(batch) = keeping_up(problem, piece, units, neighbours) else { return false };
        piece.batch = batch;
        lane.duty_us = None;
    } else {
        let Some((duty, batches)) = cycle(problem, lane, units, neighbours) else { return false };
        lane.duty_us = Some(duty);
        lane.pieces.iter_mut().zip(batches).for_each(|(piece, batch)| piece.batch = batch);
    }
    lane.units = units;
    true
}

/// The site with the least shares, from those it has on, that keep everybody in time; none if the device is too
/// small.
pub(super) fn settled<'a>(problem: &Problem, mut site: Site<'a>) -> Option<Site<'a>> {
    let kind = &site.device.kind;
    let mut loads: Vec<Vec<Load>> = site.lanes.iter().map(Lane::loads).collect();
    for _ in 0..ROUNDS {
        let mut changed = false;
        for at in 0..site.lanes.len() {
            let room = site.units_free();
            let others = loads.iter().enumerate().filter(|(other, _)| *other != at);
            let neighbours: Vec<&[Load]> = others.map(|(_, loads)| loads.as_slice()).collect();
            let lane = site.lanes.get_mut(at)?;
            let most = lane.units.saturating_add(room);
            let from = kind.sizes.partition_point(|size| *size < lane.units);
            let to = kind.sizes.partition_point(|size| *size <= most);
            let sizes = kind.sizes.get(from..to)?;
            let before = lane.clone();
            least_of(sizes, |size| tune_at(problem, lane, size, &neighbours))?;
            if !alike(&before, lane) {
                changed = true;
                *loads.get_mut(at)? = lane.loads();
            }
        }
        if !changed {
            break;
        }
    }
    site.is_sound(problem).then_some(site)
}

/// The first size that `does`, which is called for it last; looks ever further ahead, then halves. What does on one
/// size does on all larger ones but for the power that they draw.
fn least_of(sizes: &[u32], mut does: impl FnMut(u32) -> bool) -> Option<u32> {
    let last = sizes.len().checked_sub(1)?;
    let mut failed = None;
    let mut at = 0_usize;
    while !does(*sizes.get(at)?) {
        if at == last {
            return None;
        }
        failed = Some(at);
        at = at.saturating_mul(2).saturating_add(1).min(last);
    }
    let (mut low, mut high) = (failed.map_or(0, |failed| failed.saturating_add(1)), at);
    while low < high {
        let middle = low.midpoint(high);
        if does(*sizes.get(middle)?) { high = middle } else { low = middle.saturating_add(1) }
    }
    let least = *sizes.get(high)?;
    does(least).then_some(least)
}

fn alike(before: &Lane<'_>, after: &Lane<'_>) -> bool {
    let batches = |lane: &Lane<'_>| lane.pieces.iter().map(|piece| piece.batch).collect::<Vec<_>>();
    before.units == after.units && before.duty_us == after.duty_us && batches(before) == batches(after)
}

/// The site with the part on a gpulet of its own.
pub(super) fn beside<'a>(problem: &'a Problem, site: &Site<'a>, part: Part<'a>) -> Option<Site<'a>> {
    let fit = part.on(problem, &site.device.kind)?;
    let least = *site.device.kind.sizes.first()?;
    if site.units_free() < least {
        return None;
    }
    let mut trial = site.clone();
    trial.lanes.push(Lane::dedicated(Piece { part, fit, batch: 1 }, least));
    trial.fits().then(|| settled(problem, trial))?
}

/// The site with the part in the cycle of one of its gpulets.
pub(super) fn within<'a>(
    problem: &'a Problem,
    site: &Site<'a>,
    lane: usize,
    part: Part<'a>,
) -> Option<Site<'a>> {
    let fit = part.on(problem, &site.device.kind)?;
    let mut trial = site.clone();
    let joined = trial.lanes.get_mut(lane)?;
    let held = |piece: &Piece<'_>| piece.part.workload.name == part.workload.name;
    if joined.pieces.len() >= SLOTS_MAX || joined.pieces.iter().any(held) {
        return None;
    }
    joined.pieces.push(Piece { part, fit, batch: 1 });
    trial.fits().then(|| settled(problem, trial))?
}

/// The part on an empty device.
pub(super) fn alone<'a>(
    problem: &'a Problem,
    device: &'a crate::problem::Device,
    part: Part<'a>,
) -> Option<Site<'a>> {
    beside(problem, &Site { device, lanes: Vec::new() }, part)
}

/// The largest part of a rate that a whole device serves by itself, in the batch that serves most.
pub(super) fn saturating<'a>(
    problem: &'a Problem,
    device: &'a crate::problem::Device,
    part: Part<'a>,
) -> Option<Site<'a>> {
    let fit = part.on(problem, &device.kind)?;
    let units = *device.kind.sizes.last()?;
    let (batch, time) =
        fit.largest_batch(units, |_, time| 2.0 * time <= part.workload.slo_us * (1.0 + SLACK))?;
    let rate = (1e6 * f64::from(batch) / (time - fit.profile.load_us(batch))).min(part.rate);
    let lanes = vec![Lane::dedicated(Piece { part: part.at_rate(rate), fit, batch }, units)];
    let site = Site { device, lanes };
    site.is_sound(problem).then_some(site)
}
