//! GSLICE (Dhakal et al., SoCC 2020), following two independent re-implementations. Feedback adjusts each model's
//! share and batch in proportion to the distance of latency and throughput from their targets.
//!
//! Here the feedback comes from the profile, before the plan is deployed. The policy does not consider interference,
//! so its plans may miss objectives under contention. It serves as a comparison. Devices are filled first fit,
//! largest share first.

use super::Placement;
use super::demand::{Fit, Part, SLACK, Unplaced, parts};
use super::site::{Floor, Lane, Piece, Site};
use crate::plan::Plan;
use crate::problem::{Device, Problem};

/// Rounds of feedback; the re-implementations use 5 times 5.
const ROUNDS: usize = 25;
/// Relative distance from the target that is accepted.
const DEAD_BAND: f64 = 0.1;
/// Initial share of the device.
const START: f64 = 0.3;

/// Shares and batches tuned by feedback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gslice;

/// A share and a batch found by feedback.
#[derive(Clone, Copy, Debug)]
struct Tuned<'a> {
    piece: Piece<'a>,
    units: u32,
}

/// Returns whether the part keeps its objective and rate solo.
fn suffices(fit: &Fit<'_>, part: &Part<'_>, batch: u32, units: u32) -> bool {
    fit.solo_us(batch, units).is_some_and(|time| {
        2.0 * time <= part.workload.slo_us * (1.0 + SLACK) && part.rate * time <= 1e6 * f64::from(batch) * (1.0 + SLACK)
    })
}

fn tuned<'a>(problem: &'a Problem, part: Part<'a>, device: &'a Device) -> Option<Tuned<'a>> {
    let fit = part.on(problem, &device.device_type)?;
    let (least, most) = (device.device_type.size_least(), device.device_type.size_most());
    let size = |share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is from 0 to 1")]
        let units = (share * f64::from(device.device_type.units)).ceil() as u32;
        device.device_type.size_for(units).unwrap_or(most).max(least)
    };
    let (mut share, mut batch) = (START, 1_u32);
    let mut best: Option<Tuned<'a>> = None;
    for _ in 0..ROUNDS {
        let units = size(share);
        if suffices(&fit, &part, batch, units) && best.is_none_or(|best| units < best.units) {
            best = Some(Tuned { piece: Piece { part, fit, batch }, units });
        }
        // Outside the profile, where feedback has nothing to measure.
        let Some(time) = fit.solo_us(batch, units) else { break };
        let slo = part.workload.slo_us;
        let latency_slack = slo - 2.0 * time;
        let throughput = 1e6 * f64::from(batch) / time;
        let rate_slack = throughput - part.rate;
        let calm = |slack: f64, wanted: f64| slack >= 0.0 && slack < DEAD_BAND * wanted;
        if !(calm(latency_slack, slo) && calm(rate_slack, part.rate)) {
            let far = (latency_slack.abs() / slo).max(rate_slack.abs() / throughput.max(part.rate));
            let grow = latency_slack < 0.0 || rate_slack < 0.0;
            share = (if grow { share * (1.0 + far) } else { share * (1.0 - far) }).clamp(0.01, 1.0);
        }
        if !calm(latency_slack, slo) {
            let step = (latency_slack / slo * f64::from(batch)).ceil();
            let next = (f64::from(batch) + step).clamp(1.0, f64::from(fit.batch_max));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a batch")]
            let next = next as u32;
            batch = next;
        }
    }
    // Feedback that did not converge gets the least sufficient share.
    best.or_else(|| {
        let sizes = device.device_type.sizes.iter().copied();
        let mut known = sizes.filter_map(|units| {
            let (batch, _) = fit.largest_batch(units, |_, time| 2.0 * time <= part.workload.slo_us)?;
            suffices(&fit, &part, batch, units).then_some(Tuned { piece: Piece { part, fit, batch }, units })
        });
        known.next()
    })
}

/// Returns the largest part of the rate that a whole device serves.
fn whole<'a>(problem: &'a Problem, part: Part<'a>, device: &'a Device) -> Option<Tuned<'a>> {
    let fit = part.on(problem, &device.device_type)?;
    let units = device.device_type.size_most();
    let (batch, time) = fit.largest_batch(units, |_, time| 2.0 * time <= part.workload.slo_us)?;
    let rate = (1e6 * f64::from(batch) / time).min(part.rate);
    Some(Tuned { piece: Piece { part: part.at_rate(rate), fit, batch }, units })
}

impl Placement for Gslice {
    const NAME: &'static str = "gslice";
    const ABOUT: &'static str = "adjusts shares and batch sizes by feedback, without an interference model (GSLICE)";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        let mut floor = Floor::new(problem);
        let mut shared: Vec<Tuned<'_>> = Vec::new();
        for mut part in parts(problem) {
            loop {
                let unplaced = || Unplaced::of(part.workload);
                let device = floor.candidates(&part).next().ok_or_else(unplaced)?;
                if let Some(found) = tuned(problem, part, device) {
                    shared.push(found);
                    break;
                }
                let taken = whole(problem, part, device).ok_or_else(unplaced)?;
                let site = Site { device, lanes: vec![Lane::dedicated(taken.piece, taken.units)] };
                if !site.fits() {
                    return Err(unplaced());
                }
                floor.open(device, site.lanes);
                let rest = part.rate - taken.piece.part.rate;
                if rest <= SLACK * part.rate {
                    break;
                }
                part = part.at_rate(rest);
            }
        }
        let share = |tuned: &Tuned<'_>| f64::from(tuned.units) / f64::from(tuned.piece.fit.device_type.units);
        shared.sort_by(|left, right| share(right).total_cmp(&share(left)));
        for found in shared {
            join(&mut floor, found.piece.part)?;
        }
        Ok(floor.plan())
    }
}

fn join<'a>(floor: &mut Floor<'a>, part: Part<'a>) -> Result<(), Unplaced> {
    let problem = floor.problem;
    let on = |site: &Site<'a>| {
        let Tuned { piece, units } = tuned(problem, part, site.device)?;
        let mut trial = site.clone();
        trial.lanes.push(Lane::dedicated(piece, units));
        trial.fits().then_some(trial.lanes)
    };
    let held = floor.sites.iter().enumerate().filter(|(_, site)| floor.admits(site.device, &part));
    if let Some((at, lanes)) = held.filter_map(|(at, site)| Some((at, on(site)?))).next() {
        floor.replace(at, lanes, part);
        return Ok(());
    }
    let opened =
        floor.candidates(&part).find_map(|device| Some((device, on(&Site { device, lanes: Vec::new() })?)));
    let (device, lanes) = opened.ok_or_else(|| Unplaced::of(part.workload))?;
    floor.open(device, lanes);
    Ok(())
}
