//! Which nodes serve, and how the leader plans for them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Nodes that serve the models of a namespace together.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "tessera.dev",
    version = "v1alpha1",
    kind = "ServingPool",
    namespaced,
    status = "ServingPoolStatus",
    derive = "PartialEq",
    category = "tessera",
    doc = "Nodes that serve the models of a namespace together, and how the leader plans for them.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Devices", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".status.devicesWanted"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", priority = "1"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ServingPoolSpec {
    /// Labels that the pool's nodes have. Empty: every node with a NodePlan in the namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new("self.size() <= 16").message("nodeSelector: expected at most 16 labels"))]
    pub node_selector: BTreeMap<String, String>,
    /// Devices that plans use at most, set by a person or an autoscaler through the scale subresource. Nodes are used as a whole. Absent:
    /// all devices of the pool's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: Option<i32>,
    /// How models are placed on nodes.
    #[serde(default)]
    pub policy: PlannerPolicy,
    /// Share of the planned devices that is left free, from 0 to 0.9. If a model may be on nodes of several pools, the largest one counts.
    #[serde(default = "default_headroom")]
    #[schemars(range(min = 0.0, max = 0.9))]
    pub headroom: f64,
    /// What a device of the pool costs, in any unit. With `pack`, the cheapest devices that serve the rates are used.
    #[serde(default = "default_device_cost")]
    #[schemars(range(min = 0.000_001, max = 1e9))]
    pub device_cost: f64,
    /// Copies of models that the pool's nodes start to load in a minute at most. Not limited are first copies, those that `minReplicas` asks
    /// for, and those that replace copies on failed nodes.
    #[serde(default = "default_moves")]
    #[schemars(range(min = 1, max = 1_000))]
    pub moves_per_minute: i32,
}

impl ServingPoolSpec {
    /// A pool of all nodes with the defaults of the definition.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            headroom: default_headroom(),
            device_cost: default_device_cost(),
            moves_per_minute: default_moves(),
            ..Self::default()
        }
    }
}

const fn default_headroom() -> f64 {
    0.2
}

const fn default_device_cost() -> f64 {
    1.0
}

const fn default_moves() -> i32 {
    6
}

/// How models are placed on nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlannerPolicy {
    /// On as few nodes as the rates need. The other nodes hold spares.
    #[default]
    Pack,
    /// On all nodes, each with about the same load.
    Spread,
}

/// What the leader made of a pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServingPoolStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Devices of the pool's nodes that report some.
    #[serde(default)]
    pub replicas: i32,
    /// Devices that the models need, of several pools in proportion to their devices. The condition `Sufficient` says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices_wanted: Option<i32>,
    /// Nodes with a plan.
    #[serde(default)]
    pub nodes: i32,
    /// Label selector of the pool's nodes as text, for autoscalers.
    #[serde(default)]
    pub selector: String,
    /// Identity of the leader that wrote this status.
    #[serde(default)]
    pub leader: String,
    /// Epoch of that leader.
    #[serde(default)]
    pub epoch: i64,
    /// `Ready`: every node has the plan of this epoch in force, without refusals. `Sufficient`: the pool has the devices that the models need.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
