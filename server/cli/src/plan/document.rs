//! The shape of a problem file, as TOML gives it; [`super::reading`] makes sense of it.

use std::collections::BTreeMap;

use device_sections::{DeviceSection, InterferenceSection};
use gpulet_core::profile::Quantile;
use models::TimeSpan;
use serde::Deserialize;
use workload::{Paths, SplitSection, SplitWord, StageSection};

/// A problem file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Profile files, relative to the file's folder; the last component may contain one `*`.
    pub profiles: Paths,
    /// Which of the measured times to plan with.
    #[serde(default)]
    pub quantile: Quantile,
    /// How co-located batches slow each other down; not at all if unset.
    pub interference: Option<InterferenceSection>,
    /// Devices by name.
    #[serde(default)]
    pub devices: BTreeMap<String, DeviceSection>,
    /// Workloads by name.
    #[serde(default)]
    pub workloads: BTreeMap<String, WorkloadSection>,
    /// Families by name.
    #[serde(default)]
    pub families: BTreeMap<String, FamilySection>,
    /// Largest share of the requests of a workload or family that may be lost with spot devices in the long run.
    pub spot_lost_max: Option<f64>,
    /// Pipelines by name.
    #[serde(default)]
    pub pipelines: BTreeMap<String, PipelineSection>,
}

/// `[pipelines.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineSection {
    /// Time from the arrival of a request to its answer.
    pub slo: TimeSpan,
    /// Requests per second.
    pub rate: f64,
    /// Stages, each after those that it follows.
    pub stages: Vec<StageSection>,
    /// How the objective is divided; so that the stages need the fewest devices if unset.
    #[serde(default = "planned")]
    pub split: SplitSection,
    /// As of workloads, for each stage.
    pub headroom: Option<f64>,
    /// As of workloads, for each stage.
    pub replicas_min: Option<u32>,
    /// As of workloads, for each stage.
    pub batch_max: Option<u32>,
    /// As of workloads.
    #[serde(default)]
    pub tenant: String,
    /// As of workloads.
    #[serde(default)]
    pub not_with: Vec<String>,
}

/// The split of an objective that is planned.
pub fn planned() -> SplitSection {
    SplitSection::Word(SplitWord::Plan)
}

/// `[families.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilySection {
    /// Time from arrival to response.
    pub slo: TimeSpan,
    /// Requests per second.
    pub rate: f64,
    /// Variants: models with their quality, from 0 to 1, or the `quality.json` that `tessera variants measure` wrote.
    pub variants: BTreeMap<String, QualitySection>,
    /// Least quality of each answer.
    #[serde(default)]
    pub quality_min: f64,
    /// Least mean quality of all answers.
    #[serde(default)]
    pub quality_mean: f64,
    /// As of workloads.
    pub headroom: Option<f64>,
    /// As of workloads, for each variant.
    pub batch_max: Option<u32>,
    /// As of workloads.
    #[serde(default)]
    pub tenant: String,
    /// As of workloads.
    #[serde(default)]
    pub not_with: Vec<String>,
}

/// The quality of a variant.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a quality from 0 to 1, or the path of a quality.json")]
pub enum QualitySection {
    /// A number from 0 to 1.
    Number(f64),
    /// A file, relative to the folder of the problem file.
    File(String),
}

/// How a model may be split.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parallel {
    /// As the plan chooses.
    Auto,
}

/// `[workloads.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSection {
    /// Name of the model in the profiles; the section's name if unset.
    pub model: Option<String>,
    /// Time from arrival to response.
    pub slo: TimeSpan,
    /// Requests per second.
    pub rate: f64,
    /// Planned rate divided by actual rate; 1 if unset.
    pub headroom: Option<f64>,
    /// Minimum number of fault domains; 1 if unset.
    pub replicas_min: Option<u32>,
    /// Maximum rows of a batch; the largest profiled batch if unset.
    pub batch_max: Option<u32>,
    /// Shape of a row of its requests by input, such as `{ image = [3, 224, 224] }`; unknown if unset.
    #[serde(default)]
    pub shape: BTreeMap<String, Vec<u64>>,
    /// Whether the plan may split the model into stages; whole if unset.
    pub parallel: Option<Parallel>,
    /// With `parallel`: the layers of the model, a table relative to the folder of the problem file.
    pub layers: Option<String>,
    /// With `parallel`: bytes a second from one device to another.
    pub bandwidth: Option<units::Size>,
    /// Owner of the workload; empty for no owner.
    #[serde(default)]
    pub tenant: String,
    /// Tenants whose workloads must not share a fault domain with it.
    #[serde(default)]
    pub not_with: Vec<String>,
}
