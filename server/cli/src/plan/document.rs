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

fn planned() -> SplitSection {
    SplitSection::Word(SplitWord::Plan)
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
    /// Owner of the workload; empty for no owner.
    #[serde(default)]
    pub tenant: String,
    /// Tenants whose workloads must not share a fault domain with it.
    #[serde(default)]
    pub not_with: Vec<String>,
}
