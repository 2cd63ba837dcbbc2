//! Decides whether a plan is worth replacing another. Fewer devices count first, but not at any number of loads.
//!
//! A new gpulet loads its models one after another before the new plan serves anything, and no other change begins
//! before that. Saving a device is therefore worth a limited number of loads, and fewer while a workload waits for
//! more capacity.

use std::collections::{BTreeMap, BTreeSet};

use super::{Candidate, SAME_COST};
use crate::plan::{Gpulet, Plan};

/// Loads that saving a device is worth while no workload waits for more capacity.
const LOADS_A_DEVICE: u32 = 8;
/// The same while a workload waits for more capacity.
const LOADS_IN_A_HURRY: u32 = 3;
/// Relative headroom that a second gpulet of a workload on a device must add for all workloads. It is one load more
/// in every change, needs its own arena, and serves a burst with its own share only.
const HEADROOM_A_SLIVER: f64 = 0.01;

impl Candidate {
    pub(super) fn is_cheaper(&self, other: &Self) -> bool {
        self.cost < other.cost - SAME_COST * other.cost.max(1.0)
    }

    pub(super) fn beats(&self, other: &Self) -> bool {
        self.is_cheaper(other) || (!other.is_cheaper(self) && self.score() > other.score())
    }

    /// Returns the headroom, less what slivers must add.
    fn score(&self) -> f64 {
        self.headroom / (1.0 + HEADROOM_A_SLIVER * count(slivers(&self.plan)))
    }

    /// Returns whether each device that it saves compared with continuing the current plan costs no more loads than a
    /// device is worth.
    pub(super) fn is_worth_its_loads(&self, current: &Plan, continued: &Self, rising: bool) -> bool {
        let worth = if rising { LOADS_IN_A_HURRY } else { LOADS_A_DEVICE };
        let saved = count(continued.plan.devices().len()) * (1.0 - self.cost / continued.cost);
        count(loads(current, &self.plan)) - count(loads(current, &continued.plan)) <= f64::from(worth) * saved
    }
}

fn count(items: usize) -> f64 {
    f64::from(u32::try_from(items).unwrap_or(u32::MAX))
}

/// Counts the gpulets of workloads that have another one on the same device.
fn slivers(plan: &Plan) -> usize {
    let slots: usize = plan.gpulets.iter().map(|gpulet| gpulet.slots.len()).sum();
    let pairs = plan
        .gpulets
        .iter()
        .flat_map(|gpulet| gpulet.slots.iter().map(|slot| (gpulet.device.as_str(), slot.workload.as_str())));
    slots.saturating_sub(pairs.collect::<BTreeSet<_>>().len())
}

/// Device, units and workloads of a gpulet.
type Place<'a> = (&'a str, u32, u32, Vec<&'a str>);

fn place(gpulet: &Gpulet) -> Place<'_> {
    let mut workloads: Vec<&str> = gpulet.slots.iter().map(|slot| slot.workload.as_str()).collect();
    workloads.sort_unstable();
    (&gpulet.device, gpulet.first_unit, gpulet.units, workloads)
}

/// Counts the loads that replacing one plan by another takes: all models of every gpulet without an equal one in the
/// old plan.
fn loads(before: &Plan, after: &Plan) -> usize {
    let mut there: BTreeMap<Place<'_>, usize> = BTreeMap::new();
    for gpulet in &before.gpulets {
        *there.entry(place(gpulet)).or_default() += 1;
    }
    let missing = after.gpulets.iter().filter(|gpulet| match there.get_mut(&place(gpulet)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    });
    missing.map(|gpulet| gpulet.slots.len()).sum()
}
