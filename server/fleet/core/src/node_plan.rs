//! What the leader of a fleet tells one node.

use gpulet_core::plan::Gpulet;
use serde::{Deserialize, Serialize};

/// Why a node has a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The plan needs it here.
    #[default]
    Serving,
    /// It is loaded where memory is left, and takes over when another node fails.
    Spare,
}

/// One model of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PlannedModel {
    /// Name of the model in the repository.
    pub model: String,
    /// Rows a second that the plan sends here; the pickers' weight when views are stale. 0 for a spare.
    pub rate: f64,
    /// Why it is here.
    #[serde(default)]
    pub role: Role,
}

/// The models of one node, and how the leader would partition its devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodePlan {
    /// Term of the leader that wrote it. Nodes refuse plans with an older epoch than the one in force.
    pub epoch: u64,
    /// The models, by name.
    pub models: Vec<PlannedModel>,
    /// Gpulets as a starting point, by the node's own names of devices. The node repartitions from there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpulets: Vec<Gpulet>,
}

impl NodePlan {
    /// The model of that name.
    pub fn model(&self, name: &str) -> Option<&PlannedModel> {
        self.models.iter().find(|planned| planned.model == name)
    }
}
