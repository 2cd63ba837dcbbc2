//! iGniter (Xu et al., TPDS 2023): half of each objective is for running the batch, the other half for gathering it.
//! The policy finds the solo share that just keeps the first half. It then grows the share in the smallest steps
//! while co-runners make the batch late.
//!
//! Workloads go, largest share first, to the device with the least total growth. The policy trusts the model of
//! interference and leaves no headroom for bursts. It suits steady load and a well-fitted model.

use super::Placement;
use super::demand::{Fit, Part, Unplaced, parts};
use super::site::{Floor, Lane, Piece, Site};
use crate::plan::Plan;
use crate::problem::{Device, DeviceType, Problem};

/// Fraction of its throughput that a device dedicated to one workload is planned with, as in the released code.
const DEDICATED_USE: f64 = 0.9;

/// iGniter's provisioning strategy, with the batch rule of the released code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Igniter;

/// Initial placement of a part.
#[derive(Clone, Copy, Debug)]
struct Start<'a> {
    piece: Piece<'a>,
    units: u32,
}

impl Start<'_> {
    fn share(&self) -> f64 {
        f64::from(self.units) / f64::from(self.piece.fit.device_type.units)
    }
}

/// Returns the batch that gathers in half the objective, with the copy-in overlapped, and the least share that runs
/// it in the other half. Returns `None` if even the whole device is too slow.
fn start<'a>(problem: &'a Problem, part: Part<'a>, device_type: &'a DeviceType) -> Option<Start<'a>> {
    let fit = part.on(problem, device_type)?;
    let half = part.workload.slo_us / 2.0;
    let gathered = half / (1.0 + part.rate * fit.profile.load_us(1) / 1e6);
    let batch = Fit::rows_in(part.rate, gathered).min(fit.batch_max);
    let piece = Piece { part, fit, batch };
    let units = fit.smallest_size(batch, most_us(&piece))?;
    Some(Start { piece, units })
}

/// Returns the longest time of a batch: half the objective, and no longer than the next batch needs to gather.
fn most_us(piece: &Piece<'_>) -> f64 {
    let gathered = 1e6 * f64::from(piece.batch) / piece.part.rate + piece.fit.profile.load_us(piece.batch);
    (piece.part.workload.slo_us / 2.0).min(gathered)
}

/// Returns a whole device for a part, and the rate planned for it.
fn whole<'a>(problem: &'a Problem, part: Part<'a>, device: &'a Device) -> Option<(Piece<'a>, u32)> {
    let fit = part.on(problem, &device.device_type)?;
    let units = device.device_type.size_most();
    let (batch, time) = fit.largest_batch(units, |_, time| 2.0 * time < part.workload.slo_us)?;
    let throughput = 1e6 * f64::from(batch) / (time - fit.profile.load_us(batch));
    let rate = (DEDICATED_USE * throughput).min(part.rate);
    Some((Piece { part: part.at_rate(rate), fit, batch }, units))
}

/// Grows shares until every batch is in time again. Returns `None` once the device is full.
fn settled<'a>(problem: &Problem, mut site: Site<'a>) -> Option<Site<'a>> {
    loop {
        if !site.fits() {
            return None;
        }
        let times = site.times_us(problem)?;
        let mut grown = false;
        let device_type = &site.device.device_type;
        for (lane, times) in site.lanes.iter_mut().zip(times) {
            let late = lane.pieces.iter().zip(times).any(|(piece, time)| time > most_us(piece));
            if late {
                lane.units = device_type.size_for(lane.units.saturating_add(1))?;
                grown = true;
            }
        }
        if !grown {
            return Some(site);
        }
    }
}

impl Placement for Igniter {
    const NAME: &'static str = "igniter";
    const ABOUT: &'static str = "the smallest share for each model that suffices under interference; grows the share that needs the least (iGniter)";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        filled(problem).map(|floor| floor.plan())
    }
}

/// Returns the devices as this policy fills them.
pub(super) fn filled(problem: &Problem) -> Result<Floor<'_>, Unplaced> {
    let mut floor = Floor::new(problem);
    let mut shared = Vec::new();
    let mut dedicated = 0_usize;
    for mut part in parts(problem) {
        loop {
            let first = floor.candidates(&part).next().ok_or_else(|| Unplaced::of(part.workload))?;
            if let Some(start) = start(problem, part, &first.device_type) {
                shared.push(start);
                break;
            }
            let taken = whole(problem, part, first);
            let (piece, units) = taken.ok_or_else(|| Unplaced::of(part.workload))?;
            floor.open(first, vec![Lane::dedicated(piece, units)]);
            dedicated = dedicated.saturating_add(1);
            let rest = part.rate - piece.part.rate;
            if rest <= 1e-9 * part.rate {
                break;
            }
            part = part.at_rate(rest);
        }
    }
    shared.sort_by(|left, right| right.share().total_cmp(&left.share()));
    for Start { piece: Piece { part, .. }, .. } in shared {
        join(&mut floor, part, dedicated)?;
    }
    Ok(floor)
}

/// Puts a part on the device where all shares together grow least, else on a new device.
fn join<'a>(floor: &mut Floor<'a>, part: Part<'a>, dedicated: usize) -> Result<(), Unplaced> {
    let problem = floor.problem;
    let mut best: Option<(f64, usize, Site<'a>)> = None;
    for (at, site) in floor.sites.iter().enumerate().skip(dedicated) {
        if !floor.admits(site.device, &part) {
            continue;
        }
        let Some(start) = start(problem, part, &site.device.device_type) else { continue };
        let mut trial = site.clone();
        trial.lanes.push(Lane::dedicated(start.piece, start.units));
        let Some(trial) = settled(problem, trial) else { continue };
        let growth = f64::from(trial.units_used().saturating_sub(site.units_used()));
        let growth = growth / f64::from(site.device.device_type.units);
        if best.as_ref().is_none_or(|(least, ..)| growth < *least) {
            best = Some((growth, at, trial));
        }
    }
    if let Some((_, at, site)) = best {
        floor.replace(at, site.lanes, part);
        return Ok(());
    }
    let opened = floor.candidates(&part).find_map(|device| {
        let start = start(problem, part, &device.device_type)?;
        let lanes = vec![Lane::dedicated(start.piece, start.units)];
        Some((device, settled(problem, Site { device, lanes })?))
    });
    let (device, site) = opened.ok_or_else(|| Unplaced::of(part.workload))?;
    floor.open(device, site.lanes);
    Ok(())
}
