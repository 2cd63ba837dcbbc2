//! The algorithm as the authors' released code runs it (glet, commit 3c1c2aa), without its host-side batching cost.
//!
//! Kept for comparison, including what makes its plans break objectives: batch 1 is used even where it is too slow,
//! residues may be 5 % late, and 15 requests per second of any model may stay unserved.

use super::super::demand::{Fit, Part, Unplaced, parts};
use super::super::site::{Floor, Lane, Piece, Site};
use super::{Device, LANES_MAX, SLOTS_MAX};
use crate::plan::Plan;
use crate::problem::Problem;

/// Safety factor on every latency.
const SAFETY: f64 = 1.1;
/// Requests per second that do not justify a gpulet.
const UNSERVED: f64 = 15.0;
/// Accepted lateness of a residue, as a factor.
const LATE: f64 = 1.05;
/// Throughput gain, as a factor, from which a larger size counts as a step.
const STEP: f64 = 1.05;
/// Largest number of gpulets of one model. A rate that needs more is not served.
const WANTED_MAX: usize = 4_096;

/// A gpulet that a model requests.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    units: u32,
    batch: u32,
    /// Cycle of a residue, microseconds; `None` for a saturated gpulet.
    duty_us: Option<f64>,
    rate: f64,
}

fn time_us(fit: &Fit<'_>, batch: u32, units: u32) -> Option<f64> {
    Some(SAFETY * fit.solo_us(batch, units)?)
}

/// Returns the largest batch that runs twice within the objective, or 1 without one.
fn max_batch(fit: &Fit<'_>, part: &Part<'_>, units: u32) -> u32 {
    fit.largest_batch(units, |_, time| 2.0 * SAFETY * time <= part.workload.slo_us).map_or(1, |(batch, _)| batch)
}

fn saturated_rate(fit: &Fit<'_>, part: &Part<'_>, units: u32) -> f64 {
    let batch = max_batch(fit, part, units);
    time_us(fit, batch, units).map_or(0.0, |time| 1e6 * f64::from(batch) / time)
}

/// Returns the size with the largest marginal gain.
fn knee(fit: &Fit<'_>, part: &Part<'_>) -> u32 {
    let mut last = fit.device_type.size_least();
    let mut best = (0.0, last);
    let mut reached = saturated_rate(fit, part, last);
    for size in fit.device_type.sizes.iter().skip(1) {
        let rate = saturated_rate(fit, part, *size);
        if rate < STEP * reached {
            continue;
        }
        let gain = (rate - reached) / f64::from(size.saturating_sub(last));
        if gain > best.0 {
            best = (gain, *size);
        }
        (last, reached) = (*size, rate);
    }
    best.1
}

fn estimate(fit: &Fit<'_>, part: &Part<'_>) -> Option<Vec<Wanted>> {
    let knee = knee(fit, part);
    let mut wanted = Vec::new();
    let mut left = part.rate;
    let full = saturated_rate(fit, part, knee);
    while left > UNSERVED && full > 0.0 && full < left && wanted.len() < WANTED_MAX {
        wanted.push(Wanted { units: knee, batch: max_batch(fit, part, knee), duty_us: None, rate: full });
        left -= full;
    }
    // Every model gets at least one gpulet, however light.
    if left > UNSERVED || wanted.is_empty() {
        wanted.push(residue(fit, part, knee, left)?);
    }
    wanted.sort_by_key(|wanted| std::cmp::Reverse(wanted.units));
    Some(wanted)
}

fn residue(fit: &Fit<'_>, part: &Part<'_>, knee: u32, rate: f64) -> Option<Wanted> {
    let slo = part.workload.slo_us;
    let gather = |batch: u32| 1e6 * f64::from(batch) / rate;
    let (batch, _) = fit
        .largest_batch(knee, |batch, time| SAFETY * time + gather(batch) <= slo)
        .unwrap_or((1, 0.0));
    let fits = |units: u32| {
        let time = time_us(fit, batch, units)?;
        let duty = gather(batch).min(slo - time).max(time);
        (time + duty <= slo * LATE).then_some(Wanted { units, batch, duty_us: Some(duty), rate })
    };
    let last = fit.device_type.size_most();
    let forced = || {
        let time = time_us(fit, 1, last)?;
        Some(Wanted { units: last, batch: 1, duty_us: Some(time), rate })
    };
    fit.device_type.sizes.iter().find_map(|units| fits(*units)).or_else(forced)
}

/// Returns whether every workload on the device is in time, as far as this code checks.
fn tolerable(problem: &Problem, site: &Site<'_>) -> bool {
    let Some(times) = site.times_us(problem).filter(|_| site.fits()) else { return false };
    site.lanes.iter().zip(times).all(|(lane, times)| {
        let times: Vec<f64> = times.into_iter().map(|time| SAFETY * time).collect();
        let sum: f64 = times.iter().sum();
        lane.pieces.iter().zip(&times).all(|(piece, time)| {
            let forced = piece.batch == 1 && lane.pieces.len() == 1;
            let cycle = lane.duty_us.unwrap_or(*time).max(sum);
            forced || cycle + time <= piece.part.workload.slo_us * LATE
        })
    })
}

fn with<'a>(site: &Site<'a>, fit: Fit<'a>, part: Part<'a>, wanted: &Wanted, units: u32) -> Site<'a> {
    let mut trial = site.clone();
    let piece = Piece { part: part.at_rate(wanted.rate), fit, batch: wanted.batch };
    trial.lanes.push(Lane { duty_us: wanted.duty_us, ..Lane::dedicated(piece, units) });
    trial
}

/// Splits an untouched device before it uses a remaining half, as the released code does.
fn fit_in<'a>(floor: &mut Floor<'a>, part: Part<'a>, wanted: &Wanted) -> bool {
    let problem = floor.problem;
    let fresh = floor.candidates(&part).find_map(|device: &'a Device| {
        let fit = part.on(problem, &device.device_type)?;
        let site = with(&Site { device, lanes: Vec::new() }, fit, part, wanted, wanted.units);
        tolerable(problem, &site).then_some(site)
    });
    if let Some(site) = fresh {
        floor.open(site.device, site.lanes);
        return true;
    }
    let halves = floor.sites.iter().enumerate().filter_map(|(at, site)| {
        let free = site.device.device_type.size_within(site.units_free())?;
        let fits = site.lanes.len() < LANES_MAX && free >= wanted.units && floor.admits(site.device, &part);
        fits.then_some((free, at))
    });
    let mut halves: Vec<(u32, usize)> = halves.collect();
    halves.sort_unstable();
    let found = halves.into_iter().find_map(|(free, at)| {
        let site = floor.site(at)?;
        let trial = with(site, part.on(problem, &site.device.device_type)?, part, wanted, free);
        tolerable(problem, &trial).then_some((at, trial))
    });
    let Some((at, site)) = found else { return false };
    floor.replace(at, site.lanes, part);
    true
}

/// Adds a slot to a cycle, the fullest gpulet first.
fn time_share<'a>(floor: &mut Floor<'a>, part: Part<'a>, wanted: &Wanted) -> bool {
    let problem = floor.problem;
    let mut lanes: Vec<(f64, usize, usize)> = Vec::new();
    for (site_at, site) in floor.sites.iter().enumerate().filter(|(_, site)| floor.admits(site.device, &part)) {
        let Some(times) = site.times_us(problem) else { continue };
        for (lane_at, (lane, times)) in site.lanes.iter().zip(times).enumerate() {
            let sum: f64 = times.iter().sum();
            let occupancy = lane.duty_us.map_or(1.0, |duty| sum / duty);
            if lane.pieces.len() < SLOTS_MAX && occupancy < 1.0 {
                lanes.push((occupancy, site_at, lane_at));
            }
        }
    }
    lanes.sort_by(|left, right| right.0.total_cmp(&left.0));
    let found = lanes.into_iter().find_map(|(_, site_at, lane_at)| {
        let mut trial = floor.site(site_at)?.clone();
        let fit = part.on(problem, &trial.device.device_type)?;
        let lane = trial.lane_mut(lane_at)?;
        let duty_us = (1e6 * f64::from(wanted.batch) / wanted.rate).min(lane.duty_us?);
        lane.duty_us = Some(duty_us);
        lane.pieces.push(Piece { part: part.at_rate(wanted.rate), fit, batch: wanted.batch });
        for piece in &mut lane.pieces {
            piece.batch = Fit::rows_in(piece.part.rate, duty_us).min(piece.fit.batch_max);
        }
        let times = trial.times_us(problem)?;
        let busy: f64 = times.get(lane_at)?.iter().sum();
        (SAFETY * busy <= duty_us && tolerable(problem, &trial)).then_some((site_at, trial))
    });
    let Some((at, site)) = found else { return false };
    floor.replace(at, site.lanes, part);
    true
}

pub(super) fn place(problem: &Problem) -> Result<Plan, Unplaced> {
    let mut floor = Floor::new(problem);
    let mut ordered: Vec<(usize, Part<'_>)> = parts(problem).into_iter().enumerate().collect();
    let weight = |part: &Part<'_>| part.rate * part.workload.slo_us;
    ordered.sort_by(|left, right| weight(&left.1).total_cmp(&weight(&right.1)).then(right.0.cmp(&left.0)));
    for (_, part) in ordered {
        let unplaced = || Unplaced::of(part.workload);
        let device_types = problem.devices().iter().filter_map(|device| part.on(problem, &device.device_type));
        let wanted = device_types.filter_map(|fit| estimate(&fit, &part)).next().ok_or_else(unplaced)?;
        for wanted in &wanted {
            let placed = fit_in(&mut floor, part, wanted) || time_share(&mut floor, part, wanted);
            if !placed {
                return Err(unplaced());
            }
        }
    }
    Ok(floor.plan())
}
