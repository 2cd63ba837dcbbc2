//! The shape of a problem file, as TOML gives it; [`super::reading`] makes sense of it.

use std::collections::BTreeMap;
use std::fmt;

use device_sections::InterferenceSection;
use gpulet_core::profile::Quantile;
use models::TimeSpan;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use units::Size;

/// A problem file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Profile files.
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
}

/// Paths relative to the file's folder; the last component may contain one `*`.
#[derive(Debug)]
pub struct Paths(pub Vec<String>);

/// `[devices.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSection {
    /// Device type, as in profiles; the section's name if unset.
    pub kind: Option<String>,
    /// Number of devices; 1 if unset.
    pub count: Option<usize>,
    /// Number of units of the device; from the profiles if unset.
    pub units: Option<u32>,
    /// Allowed sizes of a gpulet in units, ascending; all sizes if unset.
    pub sizes: Option<Vec<u32>>,
    /// Maximum number of gpulets on one device.
    pub gpulets_max: Option<u32>,
    /// Memory available to plans.
    pub memory: Size,
    /// Memory that each device takes once.
    #[serde(default = "nothing")]
    pub base_memory: Size,
    /// Memory that each gpulet takes in addition to weights and arenas.
    #[serde(default = "nothing")]
    pub gpulet_memory: Size,
    /// Name of the domain in which all these devices fail together; one domain for each device if unset.
    pub fault_domain: Option<String>,
    /// Cost of one device, in any unit; 1 if unset.
    pub cost: Option<f64>,
}

fn nothing() -> Size {
    Size(0)
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
    /// Owner of the workload; empty for no owner.
    #[serde(default)]
    pub tenant: String,
    /// Tenants whose workloads must not share a fault domain with it.
    #[serde(default)]
    pub not_with: Vec<String>,
}

struct OneOrMany;

impl<'de> Visitor<'de> for OneOrMany {
    type Value = Paths;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path like \"profiles/*.jsonl\", or a list of paths")
    }

    fn visit_str<E: Error>(self, path: &str) -> Result<Paths, E> {
        Ok(Paths(vec![path.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Paths, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Paths)
    }
}

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMany)
    }
}
