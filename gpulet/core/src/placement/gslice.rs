//! GSLICE (Dhakal et al., SoCC 2020), following two independent re-implementations. Feedback adjusts each model's
//! share and batch in proportion to the distance of latency and throughput from their targets.
//!
//! Before a model runs, the feedback comes from its profile. While it serves, the control loop adjusts its share and
//! batch after measured batch times ([`Gslice::with`]), and these replace what the profile says. Devices are filled
//! first fit, largest share first. If the adjusted shares do not fit, each device is divided by max-min fairness, as in
//! the re-implementation by the authors of gpulet. The policy does not consider interference, so its plans may miss
//! objectives under contention. It serves as a comparison.

use std::collections::BTreeMap;

use super::Placement;
use super::demand::{Fit, Part, SLACK, Unplaced, parts};
use super::site::{Floor, Lane, Piece, Site};
use crate::plan::Plan;
use crate::problem::{Device, DeviceType, Problem};

/// Rounds of feedback; the re-implementations use 5 times 5.
const ROUNDS: usize = 25;
/// Relative distance from the target that is accepted.
const DEAD_BAND: f64 = 0.1;
/// Initial share of the device.
const START: f64 = 0.3;

/// A share of a device and a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Part of the device, from 0.01 to 1.
    pub share: f64,
    /// Rows of a batch.
    pub batch: u32,
}

/// Times of a model under a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Longest time from arrival to response: that of two batches, microseconds.
    pub latency_us: f64,
    /// Rows a second of a gpulet that is always busy.
    pub throughput: f64,
}

impl Setting {
    /// The setting after one adjustment, for a model with an objective of `slo_us` microseconds, `rate` rows a second
    /// and batches of at most `batch_max` rows.
    #[must_use]
    pub fn adjusted(self, measured: &Measured, slo_us: f64, rate: f64, batch_max: u32) -> Self {
        let Self { mut share, mut batch } = self;
        let latency_slack = slo_us - measured.latency_us;
        let rate_slack = measured.throughput - rate;
        let calm = |slack: f64, wanted: f64| slack >= 0.0 && slack < DEAD_BAND * wanted;
        if !(calm(latency_slack, slo_us) && calm(rate_slack, rate)) {
            let far = (latency_slack.abs() / slo_us).max(rate_slack.abs() / measured.throughput.max(rate));
            let grow = latency_slack < 0.0 || rate_slack < 0.0;
            share = (if grow { share * (1.0 + far) } else { share * (1.0 - far) }).clamp(0.01, 1.0);
        }
        if !calm(latency_slack, slo_us) {
            let step = (latency_slack / slo_us * f64::from(batch)).ceil();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a batch")]
            let next = (f64::from(batch) + step).clamp(1.0, f64::from(batch_max.max(1))) as u32;
            batch = next;
        }
        Self { share, batch }
    }

    /// The smallest gpulet that has the share.
    pub fn units(self, device_type: &DeviceType) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is from 0 to 1")]
        let units = (self.share * f64::from(device_type.units) - SLACK).ceil() as u32;
        device_type.size_for(units).unwrap_or(device_type.size_most()).max(device_type.size_least())
    }
}

/// Shares and batches tuned by feedback.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gslice {
    /// What measured batch times led to, by workload.
    settings: BTreeMap<String, Setting>,
}

impl Gslice {
    /// The policy with the share and batch of some workloads.
    pub fn with(settings: BTreeMap<String, Setting>) -> Self {
        Self { settings }
    }

    /// The share and batch of a part on a device; `None` if one device is not enough. Feedback adjusts the last part of a
    /// workload, which takes less than a device; those before it are whole devices.
    fn tuned<'a>(&self, problem: &'a Problem, part: Part<'a>, device: &'a Device) -> Option<Tuned<'a>> {
        match self.settings.get(&part.workload.name) {
            Some(setting) if setting.share >= 1.0 || tuned(problem, part, device).is_none() => None,
            Some(setting) => {
                let fit = part.on(problem, &device.device_type)?;
                let batch = setting.batch.min(fit.batch_max);
                Some(Tuned { piece: Piece { part, fit, batch }, units: setting.units(&device.device_type) })
            }
            None => tuned(problem, part, device),
        }
    }

    fn join<'a>(&self, floor: &mut Floor<'a>, part: Part<'a>) -> Result<(), Unplaced> {
        let problem = floor.problem;
        let on = |site: &Site<'a>| {
            let Tuned { piece, units } = self.tuned(problem, part, site.device)?;
            let mut trial = site.clone();
            trial.lanes.push(Lane::dedicated(piece, units));
            (trial.fits() || self.divide(&mut trial)).then_some(trial.lanes)
        };
        let whole = |site: &Site<'a>| {
            let lanes = on(site)?;
            let used: u32 = lanes.iter().map(|lane| lane.units).sum();
            let wanted = site.units_used() + self.tuned(problem, part, site.device)?.units;
            (used == wanted).then_some(lanes)
        };
        let held = || floor.sites.iter().enumerate().filter(|(_, site)| floor.admits(site.device, &part));
        if let Some((at, lanes)) = held().find_map(|(at, site)| Some((at, whole(site)?))) {
            floor.replace(at, lanes, part);
            return Ok(());
        }
        let opened =
            floor.candidates(&part).find_map(|device| Some((device, on(&Site { device, lanes: Vec::new() })?)));
        if let Some((device, lanes)) = opened {
            floor.open(device, lanes);
            return Ok(());
        }
        // Its share fits on no device: the shares of the emptiest one that can hold it become smaller.
        let divided = held().filter_map(|(at, site)| Some((site.units_used(), at, on(site)?)));
        let (_, at, lanes) =
            divided.min_by_key(|(used, at, _)| (*used, *at)).ok_or_else(|| Unplaced::of(part.workload))?;
        floor.replace(at, lanes, part);
        Ok(())
    }

    /// Divides a device by max-min fairness among gpulets of adjusted shares that are too large together. Returns whether
    /// they fit.
    fn divide(&self, site: &mut Site<'_>) -> bool {
        let adjusted = |lane: &Lane<'_>| {
            lane.pieces.iter().all(|piece| self.settings.contains_key(&piece.part.workload.name))
        };
        if !site.lanes.iter().all(adjusted) {
            return false;
        }
        let device_type = &site.device.device_type;
        let mut left = device_type.units;
        let mut order: Vec<usize> = (0..site.lanes.len()).collect();
        order.sort_by_key(|&at| site.lanes.get(at).map(|lane| lane.units));
        for (served, at) in order.iter().enumerate() {
            let others = u32::try_from(order.len().saturating_sub(served)).unwrap_or(u32::MAX);
            let Some(lane) = site.lanes.get_mut(*at) else { return false };
            let Some(size) = device_type.size_within(lane.units.min(left / others.max(1))) else { return false };
            lane.units = size;
            left = left.saturating_sub(size);
        }
        site.fits()
    }
}

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
    let mut setting = Setting { share: START, batch: 1 };
    let mut best: Option<Tuned<'a>> = None;
    for _ in 0..ROUNDS {
        let (units, batch) = (setting.units(&device.device_type), setting.batch);
        if suffices(&fit, &part, batch, units) && best.is_none_or(|best| units < best.units) {
            best = Some(Tuned { piece: Piece { part, fit, batch }, units });
        }
        // Outside the profile, where feedback has nothing to measure.
        let Some(time) = fit.solo_us(batch, units) else { break };
        let measured = Measured { latency_us: 2.0 * time, throughput: 1e6 * f64::from(batch) / time };
        setting = setting.adjusted(&measured, part.workload.slo_us, part.rate, fit.batch_max);
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
                if let Some(found) = self.tuned(problem, part, device) {
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
            self.join(&mut floor, found.piece.part)?;
        }
        Ok(floor.plan())
    }
}
