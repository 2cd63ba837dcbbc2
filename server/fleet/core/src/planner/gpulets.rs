//! Plans nodes that partition their devices: one problem of `gpulet-core` over the devices of all nodes.

use std::collections::BTreeMap;

use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::Problem;

use super::inputs::{FleetNode, Inputs, SEPARATOR};
use super::{FleetPlan, NotPlanned};
use crate::node_plan::{NodePlan, PlannedModel, Role};

/// Bisection steps in the search for the largest load with a plan.
const HALVINGS: u32 = 7;

type Planned = (Problem, Plan, f64);

/// Plans for the rates. If the fleet is too small, for the largest share of all of them that it serves.
pub(super) fn plan(inputs: &Inputs<'_>, epoch: u64) -> Result<FleetPlan, NotPlanned> {
    let devices = inputs.devices();
    let current = inputs.current();
    let policy = Policy::default();
    let attempt = |share: f64| -> Result<Planned, NotPlanned> {
        let problem = inputs.problem(devices.clone(), share)?.without_time_windows();
        let problem = match &current {
            Some(current) => problem.from_current(current.clone()),
            None => problem,
        };
        match policy.place(&problem) {
            Ok(plan) => Ok((problem, plan, share)),
            Err(infeasible) => Err(NotPlanned::Impossible(infeasible.to_string())),
        }
    };
    let (_, placed, share) = match attempt(1.0) {
        Err(NotPlanned::Impossible(_)) => largest_share(attempt),
        result => result,
    }?;
    let used = placed.devices().len();
    Ok(FleetPlan {
        nodes: by_node(inputs, &placed, epoch),
        share,
        devices_used: used,
        devices_wanted: (used as f64 / share.max(1.0 / f64::from(1 << HALVINGS))).ceil() as usize,
        devices_least: inputs.devices_least(),
        loads: 0,
    })
}

fn largest_share(attempt: impl Fn(f64) -> Result<Planned, NotPlanned>) -> Result<Planned, NotPlanned> {
    let mut best = attempt(0.0)?;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        match attempt(middle) {
            Ok(planned) => (low, best) = (middle, planned),
            Err(_) => high = middle,
        }
    }
    Ok(best)
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
