//! gpulet (Choi et al., USENIX ATC 2022): at most two gpulets per device, sized at the knee of throughput
//! over share.
//!
//! The heaviest model goes first. Its gpulet is as large as the knee, or as small as the remaining rate allows, and
//! takes the smallest free share that holds it. An untouched device is split if needed. The gpulet is accepted if it
//! and its co-located gpulet keep their objectives under the interference model. A model that finds no share joins a
//! gpulet in use as one more slot of its cycle. The policy suits few models of medium load.

mod released;

use std::collections::BTreeMap;

use super::Placement;
use super::demand::{Fit, Part, SLACK, Unplaced, parts};
use super::site::{Floor, Lane, Piece, Site};
use crate::plan::Plan;
use crate::problem::{Device, Problem};

/// Largest number of gpulets on a device.
const LANES_MAX: usize = 2;
/// Largest number of models in a gpulet.
const SLOTS_MAX: usize = 3;

/// The published algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpulet {
    /// Follows the released code instead of the paper: lightest first, residues with their own batches, 15 requests
    /// per second left unserved, and 5 % of lateness accepted. Its plans may break objectives.
    pub released: bool,
}

/// Returns the requests per second of the largest batch that runs twice within the objective; 0 without one.
fn saturated_rate(fit: &Fit<'_>, part: &Part<'_>, units: u32) -> f64 {
    let found = fit.largest_batch(units, |_, time| 2.0 * time <= part.workload.slo_us * (1.0 + SLACK));
    found.map_or(0.0, |(batch, time)| 1e6 * f64::from(batch) / time)
}

/// Returns the size after which more units help least compared with before: the largest drop of the slope.
fn knee(fit: &Fit<'_>, part: &Part<'_>) -> u32 {
    let mut points = vec![(0.0, 0.0)];
    points.extend(fit.device_type.sizes.iter().map(|size| (f64::from(*size), saturated_rate(fit, part, *size))));
    let pairs = points.iter().zip(points.iter().skip(1));
    let slopes: Vec<f64> = pairs.map(|((x0, y0), (x1, y1))| (y1 - y0) / (x1 - x0)).collect();
    let mut best: Option<(f64, u32)> = None;
    for ((before, after), size) in slopes.iter().zip(slopes.iter().skip(1)).zip(&fit.device_type.sizes) {
        let drop = before - after;
        if drop > 0.0 && saturated_rate(fit, part, *size) > 0.0 && best.is_none_or(|(most, _)| drop > most) {
            best = Some((drop, *size));
        }
    }
    best.map_or_else(|| fit.device_type.size_most(), |(_, size)| size)
}

/// Returns the size to look for: the knee, or less if less serves the whole rate, or more if the knee serves nothing.
fn size_wanted(fit: &Fit<'_>, part: &Part<'_>) -> Option<u32> {
    let knee = knee(fit, part);
    let sizes = fit.device_type.sizes.iter().copied();
    let required = sizes.clone().find(|size| {
        let rate = saturated_rate(fit, part, *size);
        rate > 0.0 && rate >= part.rate
    });
    let wanted = required.map_or(knee, |required| required.min(knee));
    if saturated_rate(fit, part, wanted) > 0.0 {
        return Some(wanted);
    }
    sizes.into_iter().find(|size| saturated_rate(fit, part, *size) > 0.0)
}

/// Returns the rate that the part is served on a gpulet of that size, and the device with it. Uses the largest batch
/// that keeps all objectives.
fn fitted<'a>(problem: &'a Problem, site: &Site<'a>, part: Part<'a>, units: u32) -> Option<(f64, Site<'a>)> {
    let fit = part.on(problem, &site.device.device_type)?;
    let (largest, _) = fit.largest_batch(units, |_, time| 2.0 * time <= part.workload.slo_us * (1.0 + SLACK))?;
    (1..=largest).rev().find_map(|batch| {
        let mut trial = site.clone();
        trial.lanes.push(Lane::dedicated(Piece { part, fit, batch }, units));
        if !trial.fits() {
            return None;
        }
        let times = trial.times_us(problem)?;
        let time = times.last().and_then(|times| times.first());
        let Some((time, piece)) = time.zip(trial.lanes.last_mut().and_then(|lane| lane.pieces.first_mut())) else {
            invariant::violated!("placement.added_lane_missing");
            return None;
        };
        let served = 1e6 * f64::from(batch) / (time - fit.profile.load_us(batch));
        let rate = served.min(part.rate);
        piece.part.rate = rate;
        trial.holds(&times).then_some((rate, trial))
    })
}

/// Uses the best fit: the smallest free share of a used device that is large enough, else part of a fresh device.
fn best_fit<'a>(floor: &mut Floor<'a>, part: Part<'a>) -> Option<f64> {
    let problem = floor.problem;
    let mut shares: Vec<(f64, usize, u32)> = Vec::new();
    let mut sizes: BTreeMap<&str, Option<u32>> = BTreeMap::new();
    for (at, site) in floor.sites.iter().enumerate() {
        let device_type = &site.device.device_type;
        if site.lanes.len() >= LANES_MAX || !floor.admits(site.device, &part) {
            continue;
        }
        let wanted = || part.on(problem, device_type).and_then(|fit| size_wanted(&fit, &part));
        let wanted = *sizes.entry(&device_type.name).or_insert_with(wanted);
        // The device is full, or no share of it serves the part.
        let (Some(free), Some(wanted)) = (device_type.size_within(site.units_free()), wanted) else { continue };
        if free >= wanted {
            shares.push((f64::from(free) / f64::from(device_type.units), at, free));
        }
    }
    shares.sort_by(|left, right| left.0.total_cmp(&right.0));
    let found = shares.into_iter().find_map(|(_, at, free)| {
        let (rate, site) = fitted(problem, floor.site(at)?, part, free)?;
        Some((rate, at, site))
    });
    if let Some((rate, at, site)) = found {
        floor.replace(at, site.lanes, part);
        return Some(rate);
    }
    let opened = floor.candidates(&part).find_map(|device| {
        let wanted = size_wanted(&part.on(problem, &device.device_type)?, &part)?;
        fitted(problem, &Site { device, lanes: Vec::new() }, part, wanted)
    });
    let (rate, site) = opened?;
    floor.open(site.device, site.lanes);
    Some(rate)
}

/// Returns the lane with one more slot, in the longest cycle that keeps every objective, or `None` if no cycle does.
fn shared<'a>(problem: &'a Problem, site: &Site<'a>, at: usize, part: Part<'a>) -> Option<Site<'a>> {
    let lane = site.lane(at)?;
    let fit = part.on(problem, &site.device.device_type)?;
    let own = |piece: &Piece<'_>| piece.part.workload.name == part.workload.name;
    if lane.pieces.len() >= SLOTS_MAX || lane.pieces.iter().any(own) {
        return None;
    }
    let longest = part.workload.slo_us - fit.solo_us(1, lane.units)?;
    let (batch_max, _) = fit.largest_batch(lane.units, |_, time| 2.0 * time <= part.workload.slo_us)?;
    // The part sets the cycle, as in the paper. A part too light to gather a row uses the time that its objective
    // leaves.
    (1..=batch_max).rev().find_map(|batch| {
        let duty_us = (1e6 * f64::from(batch) / part.rate).min(longest);
        let mut trial = site.clone();
        let lane = trial.lane_mut(at)?;
        lane.duty_us = Some(duty_us);
        lane.pieces.push(Piece { part, fit, batch });
        for piece in &mut lane.pieces {
            piece.batch = Fit::rows_in(piece.part.rate, duty_us);
            if piece.batch > piece.fit.batch_max {
                return None;
            }
        }
        trial.is_sound(problem).then_some(trial)
    })
}

/// Puts the rest of a part into a gpulet in use, the fullest first.
fn time_shared<'a>(floor: &mut Floor<'a>, part: Part<'a>) -> bool {
    let problem = floor.problem;
    let mut lanes: Vec<(f64, usize, usize)> = Vec::new();
    for (site_at, site) in floor.sites.iter().enumerate() {
        if !floor.admits(site.device, &part) {
            continue;
        }
        let Some(times) = site.times_us(problem) else { continue };
        for (lane_at, (lane, times)) in site.lanes.iter().zip(times).enumerate() {
            let busy = lane.pieces.iter().zip(times).map(|(piece, time)| {
                piece.part.rate * time / (1e6 * f64::from(piece.batch))
            });
            lanes.push((busy.sum(), site_at, lane_at));
        }
    }
    lanes.sort_by(|left, right| right.0.total_cmp(&left.0));
    let found = lanes.into_iter().find_map(|(_, site_at, lane_at)| {
        Some((site_at, shared(problem, floor.site(site_at)?, lane_at, part)?))
    });
    let Some((at, site)) = found else { return false };
    floor.replace(at, site.lanes, part);
    true
}

impl Placement for Gpulet {
    const NAME: &'static str = "gpulet";
    const ABOUT: &'static str = "at most two gpulets per device, of the size beyond which throughput grows little (gpulet)";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        if self.released { released::place(problem) } else { filled(problem).map(|floor| floor.plan()) }
    }
}

/// Returns the devices as the paper's algorithm fills them.
pub(super) fn filled(problem: &Problem) -> Result<Floor<'_>, Unplaced> {
    let mut floor = Floor::new(problem);
    let mut ordered = parts(problem);
    ordered.sort_by(|left, right| right.rate.total_cmp(&left.rate));
    for part in ordered {
        let mut left = part;
        loop {
            let Some(rate) = best_fit(&mut floor, left) else {
                if time_shared(&mut floor, left) {
                    break;
                }
                return Err(Unplaced::of(part.workload));
            };
            let rest = left.rate - rate;
            if rest <= SLACK * part.rate {
                break;
            }
            left = left.at_rate(rest);
        }
    }
    Ok(floor)
}
