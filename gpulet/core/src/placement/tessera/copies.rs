//! Puts copies of the workloads closest to their capacity on units that nothing uses.
//!
//! Growing a share helps only while kernels fill it. What growth leaves over may hold another gpulet of the workload.
//! Copies go to devices without one first, so that one failure does not take all of them.

use std::collections::BTreeMap;

use super::super::demand::Part;
use super::super::site::{Floor, Lane, Piece, Site};
use super::stretch::rebatch;

/// Largest number of copies.
const COPIES_MAX: usize = 64;
/// Factor by which a copy must increase the headroom of its workload. It is one load more in every change, and needs
/// memory.
const GAIN: f64 = 1.05;
/// Requests per second of a copy before its capacity is known.
const NOMINAL: f64 = 1e-6;
/// Headrooms that differ by less, relatively, are equal.
const SAME_HEADROOM: f64 = 1e-9;

/// Returns capacity divided by rate for each workload with load, or `None` if a plan of the floor would break an
/// objective.
fn headrooms<'a>(sites: &[Site<'a>], floor: &Floor<'a>) -> Option<BTreeMap<&'a str, f64>> {
    let mut capacities: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for site in sites {
        let times = site.times_us(floor.problem).filter(|times| site.fits() && site.holds(times))?;
        for (lane, times) in site.lanes.iter().zip(times) {
            for (piece, time) in lane.pieces.iter().zip(times) {
                let (capacity, rate) = capacities.entry(&piece.part.workload.name).or_default();
                // A piece without load has no known use.
                if piece.part.rate > 0.0 {
                    *capacity += piece.part.rate / lane.use_of(piece, time);
                    *rate += piece.part.rate;
                }
            }
        }
    }
    let loaded = capacities.into_iter().filter(|(_, (_, rate))| *rate > 0.0);
    Some(loaded.map(|(name, (capacity, rate))| (name, capacity / rate)).collect())
}

/// Returns the site with the part on another gpulet on its free units. Its rate is nominal.
fn with_copy<'a>(floor: &Floor<'a>, site: &Site<'a>, part: Part<'a>) -> Option<Site<'a>> {
    let device_type = &site.device.device_type;
    let units = device_type.size_within(site.units_free())?;
    let fit = part.on(floor.problem, device_type)?;
    let mut trial = site.clone();
    let (batch, _) = fit.largest_batch(units, |_, time| 2.0 * time <= part.workload.slo_us)?;
    // The rate is divided when the capacity is known.
    trial.lanes.push(Lane::dedicated(Piece { part: part.at_rate(NOMINAL), fit, batch }, units));
    rebatch(floor.problem, &mut trial, true);
    trial.is_sound(floor.problem).then_some(trial)
}

/// Divides the rate of a workload over its gpulets in proportion to their capacity.
fn divide(sites: &mut [Site<'_>], floor: &Floor<'_>, workload: &str) -> Option<()> {
    let times: Vec<Vec<Vec<f64>>> = sites.iter().map(|site| site.times_us(floor.problem)).collect::<Option<_>>()?;
    let (mut capacity, mut rate) = (0.0, 0.0);
    let mut capacities = Vec::new();
    for (lane, times) in sites.iter().zip(&times).flat_map(|(site, times)| site.lanes.iter().zip(times)) {
        for (piece, time) in lane.pieces.iter().zip(times) {
            if piece.part.workload.name == workload {
                let own = piece.part.rate / lane.use_of(piece, *time);
                capacities.push(own);
                capacity += own;
                rate += piece.part.rate;
            }
        }
    }
    let pieces = sites.iter_mut().flat_map(|site| &mut site.lanes).flat_map(|lane| &mut lane.pieces);
    let own = pieces.filter(|piece| piece.part.workload.name == workload);
    own.zip(capacities).for_each(|(piece, own)| piece.part.rate = rate * own / capacity);
    Some(())
}

/// Returns the floor with copies, or `None` if none helps.
pub(super) fn copied<'a>(floor: &Floor<'a>) -> Option<Floor<'a>> {
    if floor.sites.iter().any(Site::has_windows) {
        return None;
    }
    let mut copied = floor.clone();
    let mut copies = 0_usize;
    while copies < COPIES_MAX {
        let before = headrooms(&copied.sites, &copied)?;
        let least = before.iter().min_by(|left, right| left.1.total_cmp(right.1));
        let Some((workload, least)) = least.map(|(name, least)| (*name, *least)) else { break };
        let pieces = copied.sites.iter().flat_map(|site| &site.lanes).flat_map(|lane| &lane.pieces);
        let Some(part) = pieces.map(|piece| piece.part).find(|part| part.workload.name == workload) else { break };
        // Parts for different fault domains cannot move.
        if part.workload.replicas_min > 1 {
            break;
        }
        let holds = |site: &Site<'_>| {
            site.lanes.iter().flat_map(|lane| &lane.pieces).any(|piece| piece.part.workload.name == workload)
        };
        let mut best: Option<(bool, f64, usize, Vec<Site<'a>>)> = None;
        for (at, site) in copied.sites.iter().enumerate().filter(|(_, site)| copied.admits(site.device, &part)) {
            let Some(trial) = with_copy(&copied, site, part) else { continue };
            let mut sites = copied.sites.clone();
            let Some(changed) = sites.get_mut(at) else { continue };
            *changed = trial;
            let Some(after) = divide(&mut sites, &copied, workload).and_then(|()| headrooms(&sites, &copied)) else {
                continue;
            };
            let Some(own) = after.get(workload).copied().filter(|own| *own >= GAIN * least) else { continue };
            let others = before.iter().all(|(name, before)| {
                after.get(name).is_some_and(|after| *after >= before.min(own) * (1.0 - SAME_HEADROOM))
            });
            let apart = !holds(site);
            if others && best.as_ref().is_none_or(|(best_apart, most, ..)| (apart, own) > (*best_apart, *most)) {
                best = Some((apart, own, at, sites));
            }
        }
        let Some((_, _, at, sites)) = best else { break };
        copied.sites = sites;
        let lanes = copied.site(at)?.lanes.clone();
        copied.replace(at, lanes, part);
        copies = copies.saturating_add(1);
    }
    (copies > 0).then_some(copied)
}
