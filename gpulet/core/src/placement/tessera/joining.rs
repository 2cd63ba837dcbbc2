//! Joins gpulets of one workload on the same device.
//!
//! The smallest shares serve most for their size, so parts are split into them to find how few devices suffice. Where
//! those devices have space for fewer and larger gpulets, these cost the same, load sooner, and absorb bursts
//! together.

use std::collections::BTreeMap;

use super::super::packing::settled;
use super::super::site::{Floor, Lane, Site};
use crate::problem::Problem;

/// Returns the floor with as few gpulets on each device as hold its contents, or `None` if no two can be joined.
pub(super) fn joined<'a>(floor: &Floor<'a>) -> Option<Floor<'a>> {
    let mut joined = floor.clone();
    join(&mut joined, |_| true).then_some(joined)
}

/// Puts the contents of the devices that `takes` accepts on as few gpulets as hold them. Returns whether any device
/// has fewer.
pub(super) fn join(floor: &mut Floor<'_>, takes: impl Fn(&str) -> bool) -> bool {
    let problem = floor.problem;
    let mut any = false;
    for site in floor.sites.iter_mut().filter(|site| takes(&site.device.name) && !site.has_windows()) {
        while let Some(fewer) = fewer(problem, site) {
            *site = fewer;
            any = true;
        }
    }
    any
}

/// Returns the site with fewer gpulets of one workload, or `None` if no two can be joined.
fn fewer<'a>(problem: &'a Problem, site: &Site<'a>) -> Option<Site<'a>> {
    let mut lanes: BTreeMap<(&str, u32), Vec<&Lane<'a>>> = BTreeMap::new();
    for lane in site.lanes.iter().filter(|lane| lane.duty_us.is_none()) {
        if let [piece] = &lane.pieces[..] {
            lanes.entry((&piece.part.workload.name, piece.part.part)).or_default().push(lane);
        }
    }
    let mut groups: Vec<_> = lanes.into_values().filter(|lanes| lanes.len() > 1).collect();
    groups.sort_by_key(|lanes| std::cmp::Reverse(lanes.len()));
    groups.into_iter().find_map(|group| {
        let mut count = 1;
        while count < group.len() {
            if let Some(fewer) = on(problem, site, &group, count) {
                return Some(fewer);
            }
            count = count.saturating_mul(2);
        }
        None
    })
}

/// Returns the site with the load of some gpulets of one workload on `count` equal gpulets.
fn on<'a>(problem: &'a Problem, site: &Site<'a>, group: &[&Lane<'a>], count: usize) -> Option<Site<'a>> {
    let least = site.device.device_type.size_least();
    let Some(mut piece) = group.iter().flat_map(|lane| &lane.pieces).next().copied() else {
        invariant::violated!("placement.group_without_pieces");
        return None;
    };
    let rate: f64 = group.iter().flat_map(|lane| &lane.pieces).map(|piece| piece.part.rate).sum();
    piece.part = piece.part.at_rate(rate / f64::from(u32::try_from(count).ok()?));
    piece.batch = 1;
    let others = site.lanes.iter().filter(|lane| !group.iter().any(|joined| std::ptr::eq(*joined, *lane)));
    let mut lanes: Vec<Lane<'a>> = others.cloned().collect();
    lanes.extend(std::iter::repeat_n(Lane::dedicated(piece, least), count));
    settled(problem, Site { device: site.device, lanes }, site.device.device_type.units)
}
