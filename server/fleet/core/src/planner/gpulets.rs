//! Plans nodes that partition their devices: one problem of `gpulet-core` over the devices of all nodes.

use std::collections::BTreeMap;

use gpulet_core::placement::{Policy, largest_share};
use gpulet_core::plan::Plan;

use super::inputs::{FleetNode, Inputs, SEPARATOR};
use super::{FleetPlan, NotPlanned};
use crate::node_plan::{NodePlan, PlannedModel, Role};

/// Plans for the rates. If the fleet is too small, for the largest share of all of them that it serves.
pub(super) fn plan(inputs: &Inputs<'_>, epoch: u64) -> Result<FleetPlan, NotPlanned> {
    let devices = inputs.devices();
    let current = inputs.current();
    let policy = Policy::default();
    let attempt = |share: f64| -> Result<Plan, NotPlanned> {
        let problem = inputs.problem(devices.clone(), share)?.without_time_windows();
        let problem = match &current {
            Some(current) => problem.from_current(current.clone()),
            None => problem,
        };
        policy.place(&problem).map_err(|infeasible| NotPlanned::Impossible(infeasible.to_string()))
    };
    let (placed, share) = largest_share(attempt)?;
    let (used, devices_least) = (placed.devices().len(), inputs.devices_least());
    Ok(FleetPlan {
        nodes: by_node(inputs, &placed, epoch),
        share,
        devices_used: used,
        devices_wanted: if share > 0.0 { used as f64 / share } else { devices_least }.ceil() as usize,
        lanes_busy: 0.0,
        devices_least,
        loads: 0,
    })
}

/// The plan of each node, with its own names of devices.
fn by_node(inputs: &Inputs<'_>, placed: &Plan, epoch: u64) -> BTreeMap<String, NodePlan> {
    let empty = |node: &FleetNode| (node.name.clone(), NodePlan { epoch, ..NodePlan::default() });
    let mut nodes: BTreeMap<String, NodePlan> = inputs.nodes.iter().map(empty).collect();
    for gpulet in &placed.gpulets {
        let place = gpulet.device.as_str().split_once(SEPARATOR);
        let place = place.and_then(|(node, device)| Some((nodes.get_mut(node)?, device)));
        let Some((plan, device)) = place else {
            invariant::violated!("fleet.plan_of_unknown_device");
            continue;
        };
        for slot in &gpulet.slots {
            match plan.models.iter_mut().find(|planned| planned.model == slot.workload) {
                Some(planned) => planned.rate += slot.rate,
                None => plan.models.push(PlannedModel {
                    model: slot.workload.clone(),
                    rate: slot.rate,
                    role: Role::Serving,
                }),
            }
        }
        let mut gpulet = gpulet.clone();
        gpulet.device = device.into();
        plan.gpulets.push(gpulet);
    }
    for plan in nodes.values_mut() {
        plan.models.sort_by(|left, right| left.model.cmp(&right.model));
    }
    nodes
}
