//! Gives the gpulets of a plan to the devices that run the same already, so that fewer models are loaded.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::id::DeviceId;
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::Problem;

use crate::question::Group;

type ByDevice<'a> = BTreeMap<&'a DeviceId, Vec<&'a Gpulet>>;

/// The same plan with other devices of the same type and cost. Without a current plan it stays as it is. Quadratic in
/// the devices of a group.
pub(crate) fn on_current_devices(problem: &Problem, groups: &[Group], plan: Plan) -> Plan {
    let Some(current) = problem.current() else { return plan };
    let (wanted, runs) = (by_device(&plan), by_device(current));
    let mut gpulets = Vec::with_capacity(plan.gpulets.len());
    for group in groups {
        let moved = || group.devices.iter().filter_map(|device| Some((device, wanted.get(device)?)));
        let mut pairs = Vec::new();
        for (from, own) in moved() {
            for to in &group.devices {
                let common = runs.get(to).map_or(0, |runs| common(own, runs));
                // Of equal pairs one with the same device, which stays as it is.
                pairs.push((Reverse((common, from == to)), from, to));
            }
        }
        // The largest common part first, over all pairs.
        pairs.sort_unstable();
        let (mut placed, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for (_, from, to) in pairs {
            if placed.contains(from) || taken.contains(to) {
                continue;
            }
            placed.insert(from);
            taken.insert(to);
            let own = wanted.get(from).into_iter().flatten();
            gpulets.extend(own.map(|gpulet| Gpulet { device: to.clone(), ..(*gpulet).clone() }));
        }
    }
    Plan::new(gpulets)
}

fn by_device(plan: &Plan) -> ByDevice<'_> {
    let mut devices = ByDevice::new();
    for gpulet in &plan.gpulets {
        devices.entry(&gpulet.device).or_default().push(gpulet);
    }
    devices
}

/// Slots that one device wants and another one runs already, on gpulets of the same place.
fn common(wanted: &[&Gpulet], runs: &[&Gpulet]) -> usize {
    let of = |wanted: &&Gpulet| {
        let same =
            runs.iter().find(|gpulet| (gpulet.first_unit, gpulet.units) == (wanted.first_unit, wanted.units));
        let has = |workload: &str| {
            same.is_some_and(|gpulet| gpulet.slots.iter().any(|slot| slot.workload == workload))
        };
        wanted.slots.iter().filter(|slot| has(&slot.workload)).count()
    };
    wanted.iter().map(of).sum()
}
