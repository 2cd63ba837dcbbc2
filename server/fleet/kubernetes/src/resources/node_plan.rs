//! What the leader tells a node, and what the node made of it.

use std::collections::BTreeMap;

use fleet_core::node_plan as core;
use gpulet_core::plan::Gpulet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::model::{ModelSpec, Source};

/// The models of one node. It has the name of the node.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "tessera.dev",
    version = "v1alpha1",
    kind = "NodePlan",
    namespaced,
    status = "NodePlanStatus",
    derive = "PartialEq",
    category = "tessera",
    doc = "The models of one node, written by the leader of the fleet. It has the name of the node.",
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".spec.epoch"),
    printcolumn(name = "In force", type_ = "integer", json_path = ".status.observedEpoch"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodePlanSpec {
    /// Term of the leader that wrote the plan. It never falls, so a leader that was replaced cannot write. 0: not planned yet.
    #[serde(default)]
    #[schemars(range(min = 0))]
    #[x_kube(validation = Rule::new("self >= oldSelf").message("epoch: expected at least the epoch in force: the writer was replaced as leader"))]
    pub epoch: i64,
    /// Device type that the leader plans the node with, for the pickers. Absent: not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub device_type: String,
    /// The models, each once.
    #[serde(default)]
    #[schemars(length(max = 4_096))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["model".into()]))]
    pub models: Vec<PlannedModel>,
    /// Gpulets as a starting point, by the node's own names of devices. The node repartitions from there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "gpulets")]
    pub gpulets: Vec<Gpulet>,
}

/// One model of a node.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.role != 'spare' || self.rate == 0.0").message("rate: expected 0 for a spare"))]
pub struct PlannedModel {
    /// Name of the model in the repository.
    #[schemars(length(max = 253), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"))]
    pub model: String,
    /// Rows per second that the plan sends here; the pickers' weight when views are stale. 0 for a spare.
    #[schemars(range(min = 0.0))]
    pub rate: f64,
    /// Why it is here.
    #[serde(default)]
    pub role: Role,
    /// Bytes of device memory that it takes. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub memory_bytes: Option<i64>,
    /// Where its files are. Absent: in the repository of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "planned_source")]
    pub source: Option<Source>,
}

/// Why a node has a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The plan needs it here.
    #[default]
    Serving,
    /// It is loaded where memory is left, and takes over when another node fails.
    Spare,
}

/// What a node made of its plan.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlanStatus {
    /// Generation of the spec that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Highest epoch in force. Older plans are refused.
    #[serde(default)]
    pub observed_epoch: i64,
    /// Models that the node is ready to serve.
    #[serde(default)]
    #[schemars(length(max = 4_096), inner(length(max = 253)))]
    pub ready: Vec<String>,
    /// Models that cannot be loaded or unloaded, and why. The node tries again.
    #[serde(default)]
    #[schemars(length(max = 4_096))]
    pub refusals: Vec<Refusal>,
    /// Devices of the node.
    #[serde(default)]
    #[schemars(length(max = 1_024))]
    pub devices: Vec<Device>,
    /// Rows per second that the node can take, by model, where it was measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, f64>,
    /// `Ready`: the plan is in force as a whole.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A model that cannot be loaded or unloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Name of the model.
    #[schemars(length(max = 253))]
    pub model: String,
    /// One word in camel case for programs: `LoadFailed`, `OutOfMemory` or `UnloadFailed`.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What is wrong, for people.
    #[schemars(length(max = 1_024))]
    pub message: String,
}

/// A device of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Name that the node's gpulets use for it.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Units that gpulets divide: SMs or cores.
    #[serde(default)]
    pub units: i32,
    /// Its memory. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<i64>,
}

/// Schema of [`Gpulet`], which lives in a crate that knows no Kubernetes.
fn gpulets(_: &mut SchemaGenerator) -> Schema {
    let number = || json_schema!({"type": "number", "format": "double", "minimum": 0.0});
    let count = || json_schema!({"type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX});
    let name = || json_schema!({"type": "string", "maxLength": 253});
    let slot = json_schema!({
        "type": "object",
        "required": ["workload", "batch", "budget_us", "rate"],
        "properties": {"workload": name(), "batch": count(), "budget_us": number(), "rate": number()},
    });
    let window = json_schema!({
        "type": "object",
        "required": ["period_us", "offset_us", "length_us"],
        "properties": {"period_us": number(), "offset_us": number(), "length_us": number(), "limit_us": number()},
    });
    json_schema!({
        "type": "array",
        "maxItems": 4_096,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["device", "first_unit", "units", "slots"],
            "properties": {
                "device": name(),
                "first_unit": count(),
                "units": count(),
                "window": window,
                "duty_us": number(),
                "slots": {"type": "array", "maxItems": 4_096, "items": slot},
            },
        },
    })
}

/// A source without the rules of `Model`, which the API server finds too costly for a list.
fn planned_source(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "required": ["uri"],
        "properties": {
            "uri": {"type": "string", "maxLength": 2_048, "description": "URL of the model's folder."},
            "digest": {
                "type": "string",
                "nullable": true,
                "maxLength": 71,
                "description": "Digest of the files. Absent: whatever is at the URL.",
            },
        },
    })
}

impl NodePlanSpec {
    /// The plan of the core as the spec of a resource. `models` say the memory and the sources of the models.
    #[must_use]
    pub fn from_core(plan: &core::NodePlan, models: &BTreeMap<String, &ModelSpec>) -> Self {
        let planned = |planned: &core::PlannedModel| PlannedModel {
            model: planned.model.clone(),
            rate: rounded(planned.rate),
            role: match planned.role {
                core::Role::Serving => Role::Serving,
                core::Role::Spare => Role::Spare,
            },
            memory_bytes: models.get(&planned.model).and_then(|model| model.memory_bytes),
            source: models.get(&planned.model).and_then(|model| model.source.clone()),
        };
        Self {
            epoch: i64::try_from(plan.epoch).unwrap_or(i64::MAX),
            device_type: String::new(),
            models: plan.models.iter().map(planned).collect(),
            gpulets: plan.gpulets.iter().map(rounded_gpulet).collect(),
        }
    }

    /// The spec of a resource as a plan of the core.
    #[must_use]
    pub fn to_core(&self) -> core::NodePlan {
        let planned = |planned: &PlannedModel| core::PlannedModel {
            model: planned.model.clone(),
            rate: planned.rate,
            role: match planned.role {
                Role::Serving => core::Role::Serving,
                Role::Spare => core::Role::Spare,
            },
        };
        core::NodePlan {
            epoch: self.epoch(),
            models: self.models.iter().map(planned).collect(),
            gpulets: self.gpulets.clone(),
        }
    }

    /// The epoch. The API server refuses negative ones.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        u64::try_from(self.epoch).unwrap_or_default()
    }
}

/// A number with three digits after the point. It is the same after it was written and read as text, so a plan that did not change
/// is not written again.
fn rounded(number: f64) -> f64 {
    let rounded = (number * 1_000.0).round() / 1_000.0;
    if rounded.is_finite() { rounded } else { 0.0 }
}

fn rounded_gpulet(gpulet: &Gpulet) -> Gpulet {
    let mut gpulet = gpulet.clone();
    gpulet.duty_us = gpulet.duty_us.map(rounded);
    if let Some(window) = &mut gpulet.window {
        window.period_us = rounded(window.period_us);
        window.offset_us = rounded(window.offset_us);
        window.length_us = rounded(window.length_us);
        window.limit_us = window.limit_us.map(rounded);
    }
    for slot in &mut gpulet.slots {
        slot.budget_us = rounded(slot.budget_us);
        slot.rate = rounded(slot.rate);
    }
    gpulet
}
