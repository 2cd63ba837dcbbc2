//! What a user wants served.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// A model that the fleet serves. Its name is that of the model in requests and in the repository.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "tessera.dev",
    version = "v1alpha1",
    kind = "Model",
    namespaced,
    status = "ModelStatus",
    derive = "PartialEq",
    category = "tessera",
    doc = "A model that the fleet serves. Its name is that of the model in requests and in the repository.",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name: expected at most 63 characters"),
    printcolumn(name = "SLO", type_ = "string", json_path = ".spec.objective.slo"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.copiesReady"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".status.copiesWanted"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas")
    .message("minReplicas: expected at most maxReplicas"))]
pub struct ModelSpec {
    /// Where its files are. Absent: in the repository of each server, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// What its clients are promised.
    pub objective: Objective,
    /// Class of requests that bring no priority; 1 is the most important.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub class: i32,
    /// Tenant that the model belongs to. Placement constraints of other models name it.
    #[serde(default = "default_tenant")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"))]
    pub tenant: String,
    /// Nodes that have the model at least. 0: the model may be unloaded while it has no traffic.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10_000))]
    pub min_replicas: i32,
    /// Nodes that have the model at most. Absent: as many as the load needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_replicas: Option<i32>,
    /// On which nodes it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Rows per second to plan for at least. The fleet plans for more if it measures more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub rate: Option<f64>,
    /// Bytes of device memory that one copy takes. Plans stay within the memory of nodes, and nodes load before they unload. Absent: not known,
    /// and plans count 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub memory_bytes: Option<i64>,
    /// Batch times that plans use until the fleet has measured the model. Absent: until then, it has `minReplicas` copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

const fn one() -> i32 {
    1
}

fn default_tenant() -> String {
    "default".to_owned()
}

/// Where the files of a model are.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// URL of the model's folder.
    #[schemars(length(max = 2_048))]
    #[x_kube(validation = Rule::new("self.matches('^(s3|gs|az|abfs|http|https|file)://.+')")
        .message("source.uri: expected a URL that starts with s3://, gs://, az://, abfs://, http://, https:// or file://"))]
    pub uri: String,
    /// Digest of the files: `(cd FOLDER && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum)`.
    /// Absent: whatever is at the URL when a node loads the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')")
        .message("source.digest: expected sha256: and 64 lowercase hexadecimal digits"))]
    pub digest: Option<String>,
}

/// What clients of a model are promised.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Objective {
    /// Time in which a request is answered, for example `50ms`.
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[0-9]+([.][0-9]+)?(us|ms|s|m)$') && duration(self) > duration('0s') && duration(self) <= duration('1h')")
        .message("objective.slo: expected a duration above 0 and at most 60m, such as 50ms"))]
    pub slo: String,
}

/// Batch times of a model that was never measured: a batch of n rows takes `fixed` and n times `perRow`.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("duration(self.fixed) + duration(self.perRow) > duration('0s')")
    .message("profile: expected fixed or perRow above 0"))]
pub struct Profile {
    /// Time of every batch, however few rows it has, for example `2ms`.
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[0-9]+([.][0-9]+)?(us|ms|s|m)$') && duration(self) <= duration('1h')")
        .message("profile.fixed: expected a duration of at most 60m, such as 2ms"))]
    pub fixed: String,
    /// Time of each row in addition, for example `300us`.
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[0-9]+([.][0-9]+)?(us|ms|s|m)$') && duration(self) <= duration('1h')")
        .message("profile.perRow: expected a duration of at most 60m, such as 300us"))]
    pub per_row: String,
    /// Largest batch in rows.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4_096))]
    pub max_batch: i32,
}

/// On which nodes a model may be.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Labels that these nodes have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new("self.size() <= 16").message("placement.nodeSelector: expected at most 16 labels"))]
    pub node_selector: BTreeMap<String, String>,
    /// Tenants whose models must not be on the same node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub not_with: Vec<String>,
}

/// What the fleet made of a model.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Nodes that are ready to serve it.
    #[serde(default)]
    pub copies_ready: i32,
    /// Nodes that plans give it to.
    #[serde(default)]
    pub copies_wanted: i32,
    /// `Ready`: at least the wanted copies are ready.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
