//! What the two variants of the algorithm accept.

use super::super::demand::{Fit, Part, SLACK};
use super::super::site::{Piece, Site};
use super::estimate::{gathered, sizes};
use super::{LIGHTEST, SLOTS_MAX};
use crate::interference::{CoLocated, Load, Runner};
use crate::problem::Problem;

/// Requests per second of any model that the released program leaves unserved.
const UNSERVED: f64 = 15.0;
/// Lateness that the released program accepts for residues, as a factor.
const LATE: f64 = 1.05;
/// Largest number of times that the batches of two gpulets follow each other.
const ROUNDS: usize = 8;

/// The variant, and how it estimates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether it decides as the released program does, rather than soundly.
    pub released: bool,
    /// Factor on solo times when the needed gpulets are estimated.
    pub margin: f64,
}

impl Rules {
    /// Returns whether that much of a part's rate has to be placed.
    pub fn counts(self, part: &Part<'_>, left: f64) -> bool {
        left > if self.released { UNSERVED } else { SLACK * part.workload.wanted().max(LIGHTEST) }
    }

    /// Returns the largest batch that runs twice within the objective, with its time. The released program uses
    /// batch 1 even if that is too slow.
    pub fn saturated(
        self,
        fit: &Fit<'_>,
        part: &Part<'_>,
        time_us: impl Fn(u32) -> Option<f64>,
    ) -> Option<(u32, f64)> {
        let in_time = |batch| {
            let time = time_us(batch)?;
            (2.0 * time <= part.workload.slo_us * (1.0 + SLACK)).then_some((batch, time))
        };
        let found = (1..=fit.batch_max).map_while(in_time).last();
        found.or_else(|| Some((1, time_us(1).filter(|_| self.released)?)))
    }

    /// Returns the time of a batch on a free share of the site.
    pub fn time_us(self, site: &Site<'_>, fit: &Fit<'_>, batch: u32, units: u32) -> Option<f64> {
        let loads: Vec<Vec<Load>> = site.lanes.iter().map(super::super::site::Lane::loads).collect();
        time_us(fit, batch, units, &CoLocated::of(loads.iter().map(Vec::as_slice)))
    }

    /// Returns the site with batches that keep every objective, and the rates that they serve, or `None` if there are
    /// none. The sound variant also tries other divisions of the units if a rate falls.
    pub fn adjusted<'a>(self, problem: &Problem, site: Site<'a>) -> Option<Site<'a>> {
        let direct = self.rebatched(problem, site.clone());
        let wanted = served(&site) * (1.0 - SLACK);
        if self.released || site.lanes.len() != 2 || direct.as_ref().is_some_and(|site| served(site) >= wanted) {
            return direct;
        }
        let device_type = &site.device.device_type;
        let divisions = sizes(device_type).into_iter().filter_map(|first| {
            let second = device_type.size_within(device_type.units.checked_sub(first)?)?;
            let mut trial = site.clone();
            trial.lanes.iter_mut().zip([first, second]).for_each(|(lane, units)| lane.units = units);
            self.rebatched(problem, trial)
        });
        let mut best: Option<(f64, Site<'a>)> = None;
        for trial in direct.into_iter().chain(divisions) {
            let rate = served(&trial);
            if best.as_ref().is_none_or(|(most, _)| rate > most * (1.0 + SLACK)) {
                best = Some((rate, trial));
            }
        }
        best.map(|(_, site)| site)
    }

    /// Returns the site with other batches. Each batch changes the interference for the others.
    fn rebatched<'a>(self, problem: &Problem, mut site: Site<'a>) -> Option<Site<'a>> {
        if !site.fits() {
            return None;
        }
        for round in 0..ROUNDS {
            for at in (0..site.lanes.len()).rev() {
                self.rebatch(&mut site, at)?;
            }
            if if self.released { round > 0 } else { site.is_sound(problem) } {
                return Some(site);
            }
        }
        None
    }

    /// Chooses the batch and the rate of a gpulet next to the others. Returns `None` if no batch is in time.
    fn rebatch(self, site: &mut Site<'_>, at: usize) -> Option<()> {
        let co_located = site.co_located_with(at);
        let lane = site.lane_mut(at)?;
        let units = lane.units;
        let time_of = |piece: &Piece<'_>, batch| time_us(&piece.fit, batch, units, &co_located);
        let [piece] = &mut lane.pieces[..] else {
            let duty_us = lane.duty_us?;
            let times = lane.pieces.iter().map(|piece| time_of(piece, piece.batch));
            let times: Vec<f64> = times.collect::<Option<_>>()?;
            let sum: f64 = times.iter().sum();
            let in_time = lane.pieces.iter().zip(&times).all(|(piece, time)| {
                let (own, late) = if self.released { (sum, LATE) } else { (*time, 1.0) };
                duty_us + own <= piece.part.workload.slo_us * late * (1.0 + SLACK)
            });
            return (in_time && sum <= duty_us * (1.0 + SLACK)).then_some(());
        };
        let part = piece.part;
        let time = time_of(piece, piece.batch)?;
        if let Some(duty_us) = lane.duty_us {
            let gathers = time <= duty_us && part.rate * duty_us <= 1e6 * f64::from(piece.batch) * (1.0 + SLACK);
            let late = if self.released { LATE } else { 1.0 };
            if (gathers || self.released) && time + duty_us <= part.workload.slo_us * late {
                return Some(());
            }
            let found = gathered(self, &part, part.rate, piece.fit.batch_max, |batch| time_of(piece, batch));
            let in_cycle = |batch, duty_us| time_of(piece, batch).is_some_and(|time| time <= duty_us);
            if let Some((batch, duty_us, _)) = found.filter(|(batch, duty_us, _)| in_cycle(*batch, *duty_us)) {
                piece.batch = batch;
                lane.duty_us = Some(duty_us);
                return Some(());
            }
        }
        let keeps = lane.duty_us.is_none() && 2.0 * time <= part.workload.slo_us;
        let kept = keeps.then_some((piece.batch, time));
        let (batch, time) = kept.or_else(|| self.saturated(&piece.fit, &part, |batch| time_of(piece, batch)))?;
        piece.batch = batch;
        piece.part.rate = part.rate.min(1e6 * f64::from(batch) / (time - piece.fit.profile.load_us(batch)));
        lane.duty_us = None;
        Some(())
    }

    /// Returns the site with one more slot in the cycle of a gpulet. The cycle is the longest that keeps every
    /// objective, and at most the time in which a batch of the new slot arrives.
    pub fn shared<'a>(self, problem: &'a Problem, site: &Site<'a>, at: usize, part: Part<'a>) -> Option<Site<'a>> {
        let lane = site.lane(at)?;
        let fit = part.on(problem, &site.device.device_type)?;
        let own = |piece: &Piece<'_>| piece.part.workload.name == part.workload.name;
        if lane.pieces.len() >= SLOTS_MAX || lane.pieces.iter().any(own) {
            return None;
        }
        let longest = part.workload.slo_us - fit.solo_us(1, lane.units)?;
        let (batch_max, _) = fit.largest_batch(lane.units, |_, time| 2.0 * time <= part.workload.slo_us)?;
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
}

fn time_us(fit: &Fit<'_>, batch: u32, units: u32, co_located: &CoLocated) -> Option<f64> {
    let runner = Runner { profile: fit.profile, batch, units };
    Some(fit.profiled_us(batch, units)? * fit.problem.interference().slowdown_with(&runner, co_located))
}

/// Returns the requests per second that the site serves.
fn served(site: &Site<'_>) -> f64 {
    site.lanes.iter().flat_map(|lane| &lane.pieces).map(|piece| piece.part.rate).sum()
}
