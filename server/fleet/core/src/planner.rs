//! Plans a fleet: which models each node has, and which rates go where.
//!
//! Nodes that partition their devices form one placement problem of `gpulet-core` ([`Sharing::Gpulets`]). Nodes whose models share
//! lanes are divided into pools of models that suit each other ([`Sharing::Lanes`]). Both start from the plan in force. Models that may
//! not be on every node ([`Rules::nodes`]) get nodes of their own first.

mod domains;
mod gpulets;
mod inputs;
mod pool_members;
mod pool_nodes;
mod pool_spares;
mod pools;
mod shared_lanes;

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::problem::ProblemError;

use crate::node_plan::NodePlan;

pub use self::inputs::{FleetNode, Inputs, Rules, Sharing, Spread};

/// A plan of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPlan {
    /// The plan of each node, by name. Nodes without models have a plan without models.
    pub nodes: BTreeMap<String, NodePlan>,
    /// What the fleet can serve, relative to the rates; below 1 it is too small. 1 without load.
    pub share: f64,
    /// Devices that serve.
    pub devices_used: usize,
    /// Devices that the rates need, with the reserve of the planner and at least one node for each pool.
    pub devices_wanted: usize,
    /// Lanes that the rates keep busy; 0 for partitioned devices.
    pub lanes_busy: f64,
    /// No plan for this load needs fewer devices: the fluid relaxation ignores that devices are whole, memory and waiting.
    pub devices_least: f64,
    /// Copies of models, spares included, that nodes must load.
    pub loads: usize,
}

/// Why a fleet cannot be planned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotPlanned {
    /// The inputs are not valid.
    #[error(transparent)]
    Inputs(#[from] ProblemError),
    /// Not even a plan without load: a model fits on no device, or rules exclude each other.
    #[error("{0}")]
    Impossible(String),
}

/// Plans a fleet.
///
/// # Errors
/// If the inputs are not valid, or not even a plan without load exists.
pub fn plan(inputs: &Inputs<'_>, epoch: u64) -> Result<FleetPlan, NotPlanned> {
    let mut plan = domains::plan(inputs, epoch)?;
    let loads = plan.nodes.iter().map(|(name, plan)| {
        let held = inputs.in_force.get(name).map(names).unwrap_or_default();
        plan.models.iter().filter(|planned| !held.contains(planned.model.as_str())).count()
    });
    plan.loads = loads.sum();
    Ok(plan)
}

/// Plans nodes that any of the models may be on.
fn plan_domain(inputs: &Inputs<'_>, epoch: u64) -> Result<FleetPlan, NotPlanned> {
    match inputs.sharing {
        Sharing::Gpulets => gpulets::plan(inputs, epoch),
        Sharing::Lanes => shared_lanes::plan(inputs, epoch),
    }
}

fn names(plan: &NodePlan) -> BTreeSet<&str> {
    plan.models.iter().map(|planned| planned.model.as_str()).collect()
}

#[cfg(test)]
mod tests;
