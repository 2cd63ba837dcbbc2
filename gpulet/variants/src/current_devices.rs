//! Gives the gpulets of a plan to the devices that run the same already, so that fewer models are loaded.

use std::collections::BTreeSet;

use gpulet_core::id::DeviceId;
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::Problem;

use crate::question::Group;

/// The same plan with other devices of the same type and cost. Without a current plan it stays as it is.
pub(crate) fn on_current_devices(problem: &Problem, groups: &[Group], plan: Plan) -> Plan {
    let Some(current) = problem.current() else { return plan };
    let mut gpulets = Vec::with_capacity(plan.gpulets.len());
    for group in groups {
        let mut free: BTreeSet<&DeviceId> = group.devices.iter().collect();
        let mut moved: Vec<&DeviceId> =
            group.devices.iter().filter(|device| on(&plan, device).next().is_some()).collect();
        // The largest common part first, over all pairs.
        while let Some((from, to)) = best_pair(&plan, current, &moved, &free) {
            moved.retain(|device| *device != from);
            free.remove(to);
            gpulets.extend(on(&plan, from).map(|gpulet| Gpulet { device: to.clone(), ..gpulet.clone() }));
        }
    }
    Plan::new(gpulets)
}

fn best_pair<'a>(
    plan: &Plan,
    current: &Plan,
    moved: &[&'a DeviceId],
    free: &BTreeSet<&'a DeviceId>,
) -> Option<(&'a DeviceId, &'a DeviceId)> {
    let pairs = moved.iter().flat_map(|from| free.iter().map(move |to| (*from, *to)));
    // Of equal pairs one with the same device, which stays as it is.
    pairs.max_by_key(|(from, to)| (common(plan, from, current, to), from == to))
}

/// Slots that the plan wants on `from` and that `to` runs already, those on gpulets of the same place first.
fn common(plan: &Plan, from: &DeviceId, current: &Plan, to: &DeviceId) -> usize {
    let runs = |wanted: &Gpulet| {
        let same = on(current, to)
            .find(|gpulet| (gpulet.first_unit, gpulet.units) == (wanted.first_unit, wanted.units));
        let has = |workload: &str| {
            same.is_some_and(|gpulet| gpulet.slots.iter().any(|slot| slot.workload == workload))
        };
        wanted.slots.iter().filter(|slot| has(&slot.workload)).count()
    };
    on(plan, from).map(runs).sum()
}

fn on<'a>(plan: &'a Plan, device: &'a DeviceId) -> impl Iterator<Item = &'a Gpulet> {
    plan.gpulets.iter().filter(move |gpulet| gpulet.device == *device)
}
