//! The status of models and pools, from what the nodes report.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt as _;

use super::inputs::{Inputs, Need, NodeState, Plans, selects};
use crate::resources::condition::{self, Finding, READY, SUFFICIENT};
use crate::resources::model::{Model, ModelStatus};
use crate::resources::serving_pool::{ServingPool, ServingPoolStatus};

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The status of a model: how many nodes plans give it to, and how many of those say that it is ready.
#[must_use]
pub fn model(model: &Model, inputs: &Inputs, plans: &Plans, now: Timestamp) -> ModelStatus {
    let name = model.name_any();
    let generation = model.metadata.generation;
    let wanted = |node: &&NodeState| match plans.nodes.get(&node.name) {
        Some(plan) => plan.model(&name).is_some(),
        None => node.plan.models.iter().any(|planned| planned.model == name),
    };
    let nodes: Vec<_> = inputs.nodes.iter().filter(wanted).collect();
    let ready = nodes.iter().filter(|node| node.alive && node.status.ready.contains(&name)).count();
    let least = usize::try_from(model.spec.min_replicas).unwrap_or_default();
    let refusal = nodes.iter().find_map(|node| {
        let refusal = node.status.refusals.iter().find(|refusal| refusal.model == name)?;
        Some((refusal.reason.as_str(), format!("node `{}`: {}", node.name, refusal.message)))
    });
    let of = format!("{ready} of {} copies are ready", nodes.len());
    let (holds, reason, message) = match (plans.unplaced.get(&name), refusal) {
        (Some(problem), _) => (false, "NotPlaced", problem.clone()),
        (None, _) if nodes.len() < least => {
            (false, "NotPlaced", format!("plans give it to {} nodes, minReplicas is {least}", nodes.len()))
        }
        (None, _) if ready == nodes.len() => (true, "Ready", of),
        (None, Some((reason, message))) => (false, reason, format!("{of}; {message}")),
        (None, None) => (false, "Loading", of),
    };
    let mut conditions = model.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let finding = Finding { kind: READY, holds: Some(holds), reason, message: &message, generation };
    condition::set(&mut conditions, finding, now);
    ModelStatus {
        observed_generation: generation,
        copies_ready: count(ready),
        copies_wanted: count(nodes.len()),
        conditions,
    }
}

/// The status of a pool: its nodes and devices, and whether the leader's plans are in force on all of them.
#[must_use]
pub fn pool(
    pool: &ServingPool,
    inputs: &Inputs,
    plans: &Plans,
    leader: &str,
    now: Timestamp,
) -> ServingPoolStatus {
    let generation = pool.metadata.generation;
    let nodes: Vec<_> =
        inputs.nodes.iter().filter(|node| selects(&pool.spec.node_selector, &node.labels)).collect();
    let alive: Vec<_> = nodes.iter().filter(|node| node.alive).collect();
    let epoch = i64::try_from(inputs.epoch).unwrap_or(i64::MAX);
    let open = alive.iter().find(|node| node.status.observed_epoch != epoch || !is_ready(node));
    let (holds, reason, message) = match open {
        _ if alive.is_empty() => (false, "NoNodes", "no node that works has a plan".to_owned()),
        Some(node) => (
            false,
            "Applying",
            format!("node `{}` has not put the plan of epoch {epoch} in force", node.name),
        ),
        None => {
            (true, "InForce", format!("the plans of epoch {epoch} are in force on {} nodes", alive.len()))
        }
    };
    let mut conditions = pool.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let finding = Finding { kind: READY, holds: Some(holds), reason, message: &message, generation };
    condition::set(&mut conditions, finding, now);
    let devices: usize = alive.iter().map(|node| node.status.devices.len().max(1)).sum();
    let wanted = part(&plans.need, devices);
    let enough = sufficiency(plans, wanted, devices);
    let (holds, reason, message) = &enough;
    let finding = Finding { kind: SUFFICIENT, holds: Some(*holds), reason, message, generation };
    condition::set(&mut conditions, finding, now);
    ServingPoolStatus {
        observed_generation: generation,
        replicas: count(alive.iter().map(|node| node.status.devices.len()).sum()),
        devices_wanted: Some(count(wanted)),
        nodes: count(nodes.len()),
        selector: selector(&pool.spec.node_selector),
        leader: leader.to_owned(),
        epoch,
        conditions,
    }
}

/// The devices wanted of a pool, in proportion to its devices.
fn part(need: &Need, devices: usize) -> usize {
    if need.devices_usable == 0 {
        return need.devices_wanted;
    }
    need.devices_wanted.saturating_mul(devices).div_ceil(need.devices_usable)
}

/// Whether a pool has the devices that are wanted, and why they are.
fn sufficiency(plans: &Plans, wanted: usize, devices: usize) -> (bool, &'static str, String) {
    if let Some(problem) = &plans.problem {
        return (false, "NotPlanned", format!("models keep their copies: {problem}"));
    }
    let need = &plans.need;
    let why = format!(
        "{wanted} of {devices} devices are wanted: in the fleet, rates keep {:.1} of {} devices busy, and {} are wanted with reserve and minReplicas",
        need.devices_busy, need.devices_usable, need.devices_wanted
    );
    match wanted <= devices {
        true => (true, "DevicesSuffice", why),
        false => (false, "TooFewDevices", why),
    }
}

/// Whether the node says that all of the plan it knows is in force, and knows the plan that the API server has.
fn is_ready(node: &NodeState) -> bool {
    node.status.observed_generation == node.generation
        && node
            .status
            .conditions
            .iter()
            .any(|condition| condition.type_ == READY && condition.status == "True")
}

fn selector(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(",")
}
