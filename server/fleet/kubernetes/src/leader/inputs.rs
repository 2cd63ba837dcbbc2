//! What a planner sees, and what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::node_plan;
use k8s_openapi::api::core::v1::Node;

use crate::resources::model::Model;
use crate::resources::node_plan::{NodePlan, NodePlanSpec, NodePlanStatus};
use crate::resources::serving_pool::ServingPool;

/// A node of the fleet: every node has a `NodePlan`, which its agent creates.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeState {
    /// Its name.
    pub name: String,
    /// Labels of its `Node` and of its `NodePlan`.
    pub labels: BTreeMap<String, String>,
    /// Whether Kubernetes says that it works.
    pub alive: bool,
    /// Generation of the plan that the API server has.
    pub generation: Option<i64>,
    /// The plan that the API server has.
    pub plan: NodePlanSpec,
    /// What the node last reported.
    pub status: NodePlanStatus,
}

/// Everything that plans are made from. It is one consistent moment of the leader's copies.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Epoch of the leader.
    pub epoch: u64,
    /// Time since this process began to watch.
    pub now: Duration,
    /// Pools by name.
    pub pools: Vec<Arc<ServingPool>>,
    /// Models by name.
    pub models: Vec<Arc<Model>>,
    /// Nodes by name.
    pub nodes: Vec<NodeState>,
}

/// What a planner answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plans {
    /// Plans by node. Nodes that are left out keep the plan that they have. The leader sets the epochs.
    pub nodes: BTreeMap<String, node_plan::NodePlan>,
    /// What the models need.
    pub need: Need,
    /// How far the plans are from those that are wanted in the end.
    pub moves: MoveCounts,
    /// Why the models cannot be planned together. They then keep their copies, at least `minReplicas`.
    pub problem: Option<String>,
    /// Models without enough nodes, and why.
    pub unplaced: BTreeMap<String, String>,
}

/// Devices that the models need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Need {
    /// Devices that are needed, with reserve.
    pub devices_wanted: usize,
    /// Devices of the nodes that serve.
    pub devices_used: usize,
    /// Devices of the nodes that may be used.
    pub devices_usable: usize,
    /// What the fleet can serve, relative to the rates; below 1 it is too small. 1 without load, 0 if no plan exists.
    pub share: f64,
    /// Devices that the rates keep busy.
    pub devices_busy: f64,
}

/// Copies of models that are started or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCounts {
    /// Started by this plan.
    pub started: usize,
    /// Not started yet.
    pub waiting: usize,
    /// Of these, copies that find no space.
    pub blocked: usize,
}

/// Makes plans. It may keep state between two calls, and is called again after each change.
pub trait Planner: Send + 'static {
    /// Plans all nodes.
    fn plan(&mut self, inputs: &Inputs) -> Plans;
}

impl<F: FnMut(&Inputs) -> Plans + Send + 'static> Planner for F {
    fn plan(&mut self, inputs: &Inputs) -> Plans {
        self(inputs)
    }
}

/// Device type of a node.
const TYPE_LABEL: &str = "tessera.dev/device-type";

impl NodeState {
    /// The device type that its labels say.
    #[must_use]
    pub fn device_type(&self) -> Option<&str> {
        self.labels.get(TYPE_LABEL).map(String::as_str)
    }
}

/// Whether all labels of a selector are among these.
#[must_use]
pub fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// The node of a plan. `known` are the Kubernetes nodes, if they are watched: a node that is not among them does not work.
#[must_use]
pub fn node_state(plan: &NodePlan, known: Option<&BTreeMap<String, Arc<Node>>>) -> NodeState {
    let name = plan.metadata.name.clone().unwrap_or_default();
    let node = known.map(|known| known.get(&name));
    let mut labels = BTreeMap::new();
    if let Some(Some(node)) = node {
        labels.extend(node.metadata.labels.clone().unwrap_or_default());
    }
    labels.extend(plan.metadata.labels.clone().unwrap_or_default());
    NodeState {
        name,
        labels,
        alive: node.is_none_or(|node| node.is_some_and(|node| is_ready(node))),
        generation: plan.metadata.generation,
        plan: plan.spec.clone(),
        status: plan.status.clone().unwrap_or_default(),
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let ready = conditions.filter(|condition| condition.type_ == "Ready");
    node.metadata.deletion_timestamp.is_none()
        && ready.into_iter().all(|condition| condition.status == "True")
}
