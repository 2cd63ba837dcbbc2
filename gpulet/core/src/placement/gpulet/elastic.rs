//! Elastic partitioning: best fit, readjusting, merging of residues, and sharing in time.

use super::super::demand::{Fit, Part, SLACK, Unplaced};
use super::super::site::{Floor, Lane, Piece, Site};
use super::estimate::{Wanted, gathered, wanted};
use super::rules::Rules;
use super::{LANES_MAX, LIGHTEST, SLOTS_MAX};
use crate::problem::Device;

/// Fraction of its rate with which the released program is content after interference.
const CONTENT: f64 = 0.85;

/// A free share: the rest of a used device, by position, or an unused device.
#[derive(Clone, Copy, Debug)]
enum Share<'a> {
    Rest(usize),
    Whole(&'a Device),
}

/// Devices while they are partitioned.
pub(super) struct Elastic<'a> {
    pub floor: Floor<'a>,
    rules: Rules,
    /// Rates that earlier gpulets no longer serve next to later ones.
    lost: Vec<Part<'a>>,
}

impl<'a> Elastic<'a> {
    pub fn new(floor: Floor<'a>, rules: Rules) -> Self {
        Self { floor, rules, lost: Vec::new() }
    }

    /// Places a part. Returns the rates that earlier gpulets no longer serve.
    pub fn add(&mut self, part: Part<'a>) -> Result<Vec<Part<'a>>, Unplaced> {
        let part = part.at_rate(part.rate.max(LIGHTEST));
        let mut left = part.rate;
        self.fit(part, &mut left);
        if self.rules.counts(&part, left) {
            self.readjust(part, &mut left);
            self.merge(part, &mut left);
        }
        if self.rules.counts(&part, left) && !self.time_share(part.at_rate(left)) {
            return Err(Unplaced::of(part.workload));
        }
        Ok(std::mem::take(&mut self.lost))
    }

    /// Returns whether the released program is content with what is placed of the part's workload.
    pub fn is_content(&self, part: &Part<'_>) -> bool {
        let own = |placed: &Part<'_>| placed.workload.name == part.workload.name;
        let placed: f64 = self.floor.sites.iter().flat_map(parts_of).filter(own).map(|part| part.rate).sum();
        self.rules.released && placed >= CONTENT * part.workload.wanted()
    }

    /// Returns the free shares that may hold the part, with their units: used devices first.
    fn shares(&self, part: Part<'a>) -> Vec<(Share<'a>, u32)> {
        let rests = self.floor.sites.iter().enumerate().filter_map(|(at, site)| {
            let open = site.lanes.len() < LANES_MAX && self.floor.admits(site.device, &part);
            let units = site.device.device_type.size_within(site.units_free()).filter(|_| open)?;
            Some((Share::Rest(at), units))
        });
        let wholes = self.floor.candidates(&part);
        rests.chain(wholes.map(|device| (Share::Whole(device), device.device_type.size_most()))).collect()
    }

    fn device(&self, share: Share<'a>) -> Option<&'a Device> {
        match share {
            Share::Rest(at) => Some(self.floor.site(at)?.device),
            Share::Whole(device) => Some(device),
        }
    }

    fn site(&self, share: Share<'a>) -> Option<Site<'a>> {
        match share {
            Share::Rest(at) => self.floor.site(at).cloned(),
            Share::Whole(device) => Some(Site { device, lanes: Vec::new() }),
        }
    }

    /// Puts a gpulet on a free share if all gpulets of the device keep their objectives. Returns the rate that it
    /// serves.
    fn put(&mut self, share: Share<'a>, units: u32, part: Part<'a>, wanted: &Wanted) -> Option<f64> {
        let mut site = self.site(share)?;
        let before: Vec<Part<'a>> = parts_of(&site).collect();
        let fit = part.on(self.floor.problem, &site.device.device_type)?;
        let piece = Piece { part: part.at_rate(wanted.rate), fit, batch: wanted.batch };
        site.lanes.push(Lane { duty_us: wanted.duty_us, ..Lane::dedicated(piece, units) });
        let site = self.rules.adjusted(self.floor.problem, site)?;
        let served = parts_of(&site).last()?.rate;
        for (before, after) in before.iter().zip(parts_of(&site)) {
            let lost = before.rate - after.rate;
            if lost > SLACK * before.rate {
                self.lost.push(before.at_rate(lost));
            }
        }
        match share {
            Share::Rest(at) => self.floor.replace(at, site.lanes, part),
            Share::Whole(device) => self.floor.open(device, site.lanes),
        }
        Some(served)
    }

    /// Does something, and undoes it if it fails.
    fn attempt<T>(&mut self, does: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let (floor, lost) = (self.floor.clone(), self.lost.len());
        let done = does(self);
        if done.is_none() {
            self.floor = floor;
            self.lost.truncate(lost);
        }
        done
    }

    /// Places the gpulets that the part needs, each where it fits best, if all of them fit.
    fn fit(&mut self, part: Part<'a>, left: &mut f64) {
        let problem = self.floor.problem;
        let mut tried: Vec<&str> = Vec::new();
        for (share, _) in self.shares(part) {
            let Some(device_type) = self.device(share).map(|device| &device.device_type) else { return };
            if tried.contains(&device_type.name.as_str()) {
                continue;
            }
            tried.push(&device_type.name);
            let Some(fit) = part.on(problem, device_type) else { continue };
            let wanted = wanted(self.rules, &fit, &part);
            let all = |elastic: &mut Self| {
                let served: Option<Vec<f64>> =
                    wanted.iter().map(|wanted| elastic.best_fit(part, &fit, wanted)).collect();
                served.filter(|served| !served.is_empty())
            };
            if let Some(served) = self.attempt(all) {
                *left -= served.into_iter().sum::<f64>();
                return;
            }
        }
    }

    /// Places a gpulet on a rest of exactly its size, else on an unused device, else on the smallest sufficient rest.
    fn best_fit(&mut self, part: Part<'a>, fit: &Fit<'a>, wanted: &Wanted) -> Option<f64> {
        let mut shares = self.shares(part);
        shares.retain(|(share, units)| {
            let device_type = self.device(*share).map(|device| &device.device_type.name);
            *units >= wanted.units && device_type == Some(&fit.device_type.name)
        });
        shares.sort_by_key(|(share, units)| match share {
            Share::Rest(_) if *units == wanted.units => (0, 0),
            Share::Whole(_) => (1, 0),
            Share::Rest(_) => (2, *units),
        });
        shares.into_iter().find_map(|(share, units)| {
            let units = if matches!(share, Share::Whole(_)) { wanted.units } else { units };
            let disturbs = self.rules.released && !self.residues_stay_in_time(share, part, units, wanted)?;
            if disturbs { None } else { self.put(share, units, part, wanted) }
        })
    }

    /// Returns whether residues are in time next to each other without other batches.
    fn residues_stay_in_time(&self, share: Share<'a>, part: Part<'a>, units: u32, wanted: &Wanted) -> Option<bool> {
        let mut site = self.site(share)?;
        let fit = part.on(self.floor.problem, &site.device.device_type)?;
        let piece = Piece { part, fit, batch: wanted.batch };
        site.lanes.push(Lane { duty_us: wanted.duty_us, ..Lane::dedicated(piece, units) });
        let times = site.times_us(self.floor.problem)?;
        Some(site.lanes.iter().zip(times).all(|(lane, times)| {
            let worst_us = lane.duty_us.map_or(0.0, |duty_us| duty_us + times.iter().sum::<f64>());
            lane.pieces.iter().all(|piece| worst_us <= piece.part.workload.slo_us)
        }))
    }

    /// Fills free shares, largest first: saturated while the rate allows, then with the residue.
    fn readjust(&mut self, part: Part<'a>, left: &mut f64) {
        let mut saturating = true;
        let mut skipped = 0_usize;
        while self.rules.counts(&part, *left) {
            let mut shares = self.shares(part);
            shares.sort_by_key(|(_, units)| std::cmp::Reverse(*units));
            let Some((share, units)) = shares.get(skipped).copied() else { return };
            let Some((units, wanted)) = self.next(share, units, part.at_rate(*left), saturating) else {
                skipped = skipped.saturating_add(1);
                continue;
            };
            if saturating && wanted.rate > *left {
                saturating = false;
                continue;
            }
            match self.put(share, units, part, &wanted) {
                Some(served) => *left -= served,
                None => skipped = skipped.saturating_add(1),
            }
        }
    }

    /// Returns the gpulet to try on a free share, and its size.
    fn next(&self, share: Share<'a>, units: u32, left: Part<'a>, saturating: bool) -> Option<(u32, Wanted)> {
        let site = self.site(share)?;
        let fit = left.on(self.floor.problem, &site.device.device_type)?;
        let units = match share {
            Share::Whole(_) => wanted(self.rules, &fit, &left).first().map_or(units, |wanted| wanted.units),
            Share::Rest(_) => units,
        };
        let time_us = |batch| self.rules.time_us(&site, &fit, batch, units);
        let wanted = if saturating {
            let (batch, time) = self.rules.saturated(&fit, &left, time_us)?;
            Wanted { units, batch, duty_us: None, rate: 1e6 * f64::from(batch) / time }
        } else {
            let (batch, duty_us, rate) = gathered(self.rules, &left, left.rate, fit.batch_max, time_us)?;
            Wanted { units, batch, duty_us: Some(duty_us), rate }
        };
        Some((units, wanted))
    }

    /// Replaces the residues of a part, and what is left of it, by one gpulet of one of their sizes.
    fn merge(&mut self, part: Part<'a>, left: &mut f64) {
        let rules = self.rules;
        let merged = self.attempt(|elastic| {
            let mut rate = *left;
            let mut sizes: Vec<(f64, u32)> = Vec::new();
            for site in &mut elastic.floor.sites {
                site.lanes.retain(|lane| {
                    let ([piece], Some(_)) = (&lane.pieces[..], lane.duty_us) else { return true };
                    let same = piece.part.workload.name == part.workload.name && piece.part.part == part.part;
                    if same {
                        rate += piece.part.rate;
                        let full = rules.saturated(&piece.fit, &part, |batch| piece.fit.solo_us(batch, lane.units));
                        let full = full.map_or(0.0, |(batch, time)| 1e6 * f64::from(batch) / time);
                        sizes.push((full, lane.units));
                    }
                    !same
                });
            }
            while let Some(at) = elastic.floor.sites.iter().position(|site| site.lanes.is_empty()) {
                elastic.floor.close(at);
            }
            let (least, units) = sizes.iter().copied().reduce(|least, next| if next.0 < least.0 { next } else { least })?;
            // A single residue would only be placed again.
            if least < rate || (sizes.len() < 2 && !rules.counts(&part, *left)) {
                return None;
            }
            elastic.shares(part).into_iter().find_map(|(share, free)| {
                let whole = matches!(share, Share::Whole(_));
                if free < units || (rules.released && free != units && !whole) {
                    return None;
                }
                elastic.attempt(|elastic| {
                    let site = elastic.site(share)?;
                    let fit = part.on(elastic.floor.problem, &site.device.device_type)?;
                    let time_us = |batch| rules.time_us(&site, &fit, batch, units);
                    let (batch, duty_us, rate) = gathered(rules, &part, rate, fit.batch_max, time_us)?;
                    let wanted = Wanted { units, batch, duty_us: Some(duty_us), rate };
                    elastic.put(share, units, part, &wanted).filter(|served| *served >= rate * (1.0 - SLACK))
                })
            })
        });
        if merged.is_some() {
            *left = 0.0;
        }
    }

    /// Adds a slot to the cycle of a gpulet in use, the fullest first. Returns whether one has time for it.
    fn time_share(&mut self, part: Part<'a>) -> bool {
        let problem = self.floor.problem;
        let mut lanes: Vec<(f64, usize, usize)> = Vec::new();
        for (site_at, site) in self.floor.sites.iter().enumerate() {
            let Some(times) = site.times_us(problem).filter(|_| self.floor.admits(site.device, &part)) else { continue };
            for (lane_at, (lane, times)) in site.lanes.iter().zip(times).enumerate() {
                let busy = lane.pieces.iter().zip(times).map(|(piece, time)| lane.use_of(piece, time));
                let busy: f64 = busy.sum();
                if lane.pieces.len() < SLOTS_MAX {
                    lanes.push((busy, site_at, lane_at));
                }
            }
        }
        lanes.sort_by(|left, right| right.0.total_cmp(&left.0));
        let found = lanes.into_iter().find_map(|(_, site_at, lane_at)| {
            Some((site_at, self.rules.shared(problem, self.floor.site(site_at)?, lane_at, part)?))
        });
        let Some((at, site)) = found else { return false };
        self.floor.replace(at, site.lanes, part);
        true
    }
}

fn parts_of<'a, 'b>(site: &'b Site<'a>) -> impl Iterator<Item = Part<'a>> + use<'a, 'b> {
    site.lanes.iter().flat_map(|lane| &lane.pieces).map(|piece| piece.part)
}
