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
    /// What neighbours do to each other; nothing, if it is not said.
    pub interference: Option<InterferenceSection>,
    /// Devices by name.
    #[serde(default)]
    pub devices: BTreeMap<String, DeviceSection>,
    /// Workloads by name.
    #[serde(default)]
    pub workloads: BTreeMap<String, WorkloadSection>,
}

/// Paths from the file's folder on; the last part may have one `*`.
#[derive(Debug)]
pub struct Paths(pub Vec<String>);

/// `[devices.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSection {
    /// Kind of device, as profiles call it; the section's name, if it is not said.
    pub kind: Option<String>,
    /// How many there are; 1, if it is not said.
    pub count: Option<usize>,
    /// The smallest shares that a device is cut into; as the profiles say, if the file does not.
    pub units: Option<u32>,
    /// Sizes of gpulet in units, ascending; every number, if it is not said.
    pub sizes: Option<Vec<u32>>,
    /// Gpulets that may exist at once.
    pub gpulets_max: Option<u32>,
    /// Memory that may be planned with.
    pub memory: Size,
    /// Memory taken once a device.
    #[serde(default = "nothing")]
    pub base_memory: Size,
    /// Memory taken by each gpulet beside weights and arenas.
    #[serde(default = "nothing")]
    pub gpulet_memory: Size,
    /// What all of them fail with; each is one of its own, if it is not said.
    pub fault_domain: Option<String>,
    /// What using one costs, in any unit; 1, if it is not said.
    pub cost: Option<f64>,
}

fn nothing() -> Size {
    Size(0)
}

/// `[workloads.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSection {
    /// Model, as profiles call it; the section's name, if it is not said.
    pub model: Option<String>,
    /// Time from arrival to answer.
    pub slo: TimeSpan,
    /// Requests a second.
    pub rate: f64,
    /// Rate to plan for over the rate that is; 1, if it is not said.
    pub headroom: Option<f64>,
    /// Fault domains that it must be in at least; 1, if it is not said.
    pub replicas_min: Option<u32>,
    /// Rows a batch at most; as many as are profiled, if it is not said.
    pub batch_max: Option<u32>,
    /// Whose it is.
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
