//! Nexus (Shen et al., SOSP 2019): workloads share whole devices in time only, by squishy bin packing.
//!
//! A model gets whole devices while it saturates them with the largest batch that runs twice within its objective.
//! Leftovers share devices in duty cycles. Merging two leftovers uses the shorter cycle, so batches shrink and no
//! latency grows. The policy suits devices on which spatial sharing does not help or is not possible. It is stricter
//! than the released code in two ways. A leftover waits b / r instead of (b - 1) / r. A leftover too light to gather
//! even a batch of one runs one once per cycle, so that light models share.

use super::Placement;
use super::demand::{Fit, Part, SLACK, Unplaced, parts};
use super::site::{Floor, Lane, Piece, Site};
use crate::plan::Plan;
use crate::problem::{Device, Problem};

/// Squishy bin packing of whole devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Temporal;

/// A part on a whole device, once every `duty_us`.
#[derive(Clone, Copy, Debug)]
struct SharedSlot<'a> {
    piece: Piece<'a>,
    duty_us: f64,
    time_us: f64,
}

fn whole(device: &Device) -> u32 {
    device.device_type.size_most()
}

/// Returns the largest batch that runs twice within the objective, and its time.
fn saturated(fit: &Fit<'_>, part: &Part<'_>, units: u32) -> Option<(u32, f64)> {
    fit.largest_batch(units, |_, time| 2.0 * time <= part.workload.slo_us * (1.0 + SLACK))
}

/// Returns the cycle of a leftover on its own device.
fn shared_slot<'a>(problem: &'a Problem, part: Part<'a>, device: &'a Device) -> Option<SharedSlot<'a>> {
    let fit = part.on(problem, &device.device_type)?;
    let slo_us = part.workload.slo_us;
    let gather = |batch: u32| 1e6 * f64::from(batch) / part.rate;
    let light_us = fit.solo_us(1, whole(device))?;
    let (batch, time_us) = if gather(1) + light_us > slo_us {
        // Too light to gather even one row in time: it runs one row per cycle.
        (1, light_us)
    } else {
        let in_time = |batch, time| gather(batch) + time <= slo_us * (1.0 + SLACK);
        let gathered = fit.largest_batch(whole(device), in_time);
        gathered.filter(|(batch, time)| *time <= gather(*batch)).or_else(|| saturated(&fit, &part, whole(device)))?
    };
    let duty_us = gather(batch).min(slo_us - time_us);
    (time_us <= duty_us * (1.0 + SLACK)).then_some(SharedSlot { piece: Piece { part, fit, batch }, duty_us, time_us })
}

/// Returns the lane of a device with one more leftover, or `None` if they do not fit into one cycle.
fn merged<'a>(problem: &Problem, site: &Site<'a>, slot: &SharedSlot<'a>) -> Option<(f64, Lane<'a>)> {
    let lane = site.lane(0)?;
    // A device that one part saturates has no cycle.
    let duty_us = lane.duty_us?.min(slot.duty_us);
    let mut pieces = lane.pieces.clone();
    match pieces.iter_mut().find(|piece| same(&piece.part, &slot.piece.part)) {
        Some(piece) => piece.part.rate += slot.piece.part.rate,
        None => pieces.push(slot.piece),
    }
    for piece in &mut pieces {
        piece.batch = Fit::rows_in(piece.part.rate, duty_us);
    }
    if pieces.iter().any(|piece| piece.batch > piece.fit.batch_max) {
        return None;
    }
    let lane = Lane { duty_us: Some(duty_us), pieces, ..lane.clone() };
    let trial = Site { device: site.device, lanes: vec![lane.clone()] };
    let times = trial.times_us(problem)?;
    let busy: f64 = times.iter().flatten().sum();
    (trial.fits() && trial.holds(&times)).then_some((busy / duty_us, lane))
}

fn same(left: &Part<'_>, right: &Part<'_>) -> bool {
    left.workload.name == right.workload.name && left.part == right.part
}

impl Placement for Temporal {
    const NAME: &'static str = "temporal";
    const ABOUT: &'static str = "whole devices, shared by time in duty cycles; squishy bin packing (Nexus)";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        filled(problem).map(|floor| floor.plan())
    }
}

/// Returns the devices as this policy fills them.
pub(super) fn filled(problem: &Problem) -> Result<Floor<'_>, Unplaced> {
    let mut floor = Floor::new(problem);
    let mut leftovers = Vec::new();
    for part in parts(problem) {
        let rest = saturate(&mut floor, part)?;
        let first = floor.candidates(&rest).next().or(floor.sites.first().map(|site| site.device));
        let first = first.ok_or_else(|| Unplaced::of(part.workload))?;
        if rest.rate > 0.0 || part.rate <= 0.0 {
            let occupancy = shared_slot(problem, rest, first).map_or(1.0, |slot| slot.time_us / slot.duty_us);
            leftovers.push((occupancy, rest));
        }
    }
    leftovers.sort_by(|left, right| right.0.total_cmp(&left.0));
    for (_, part) in leftovers {
        join(&mut floor, part)?;
    }
    Ok(floor)
}

/// Gives whole devices to a part while it fills them. Returns the rest.
fn saturate<'a>(floor: &mut Floor<'a>, mut part: Part<'a>) -> Result<Part<'a>, Unplaced> {
    loop {
        let fitting = |device: &'a Device| Some((device, part.on(floor.problem, &device.device_type)?));
        // What no unused device takes may still join a cycle.
        let Some((device, fit)) = floor.candidates(&part).find_map(fitting) else { return Ok(part) };
        let units = whole(device);
        let unplaced = || Unplaced::of(part.workload);
        let (batch, time) = saturated(&fit, &part, units).ok_or_else(unplaced)?;
        let throughput = 1e6 * f64::from(batch) / time;
        if part.rate < throughput * (1.0 - SLACK) {
            return Ok(part);
        }
        let rate = throughput.min(part.rate);
        let piece = Piece { part: part.at_rate(rate), fit, batch };
        let lanes = vec![Lane::dedicated(piece, units)];
        if !(Site { device, lanes: lanes.clone() }).fits() {
            return Err(unplaced());
        }
        floor.open(device, lanes);
        let rest = part.rate - rate;
        part = part.at_rate(if rest > SLACK * part.rate { rest } else { 0.0 });
        if part.rate <= 0.0 {
            return Ok(part);
        }
    }
}

/// Puts a leftover into the cycle that it fills best, else on a new device.
fn join<'a>(floor: &mut Floor<'a>, part: Part<'a>) -> Result<(), Unplaced> {
    let problem = floor.problem;
    let mut best: Option<(f64, usize, Lane<'a>)> = None;
    for (at, site) in floor.sites.iter().enumerate().filter(|(_, site)| floor.admits(site.device, &part)) {
        let Some(slot) = shared_slot(problem, part, site.device) else { continue };
        let Some((occupancy, lane)) = merged(problem, site, &slot) else { continue };
        if best.as_ref().is_none_or(|(most, ..)| occupancy > *most) {
            best = Some((occupancy, at, lane));
        }
    }
    if let Some((_, at, lane)) = best {
        floor.replace(at, vec![lane], part);
        return Ok(());
    }
    let opened = floor.candidates(&part).find_map(|device| {
        let SharedSlot { piece, duty_us, .. } = shared_slot(problem, part, device)?;
        let lane = Lane { duty_us: Some(duty_us), ..Lane::dedicated(piece, whole(device)) };
        let site = Site { device, lanes: vec![lane] };
        site.is_sound(problem).then_some(site)
    });
    let site = opened.ok_or_else(|| Unplaced::of(part.workload))?;
    floor.open(site.device, site.lanes);
    Ok(())
}
