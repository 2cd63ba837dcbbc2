//! The shape of a problem file, as TOML gives it; [`super::reading`] makes sense of it.

use std::collections::BTreeMap;
use std::fmt;

use gpulet_core::profile::Quantile;
use models::TimeSpan;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::config::units::Size;

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
    pub interference: Option<Believed>,
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

/// A model of interference, by its word alone or with its figures.
#[derive(Debug)]
pub struct Believed(pub InterferenceSection);

/// `[interference]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterferenceSection {
    /// Its word.
    pub model: String,
    /// Weights of its terms: five of `gpulet`, four of `contention`.
    #[serde(default)]
    pub coefficients: Vec<f64>,
    /// `[interference.power.KIND]`: what `igniter` and `contention` must know of a kind of device.
    #[serde(default)]
    pub power: BTreeMap<String, PowerSection>,
}

/// `[interference.power.KIND]`, see [`gpulet_core::interference::DevicePower`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerSection {
    /// Watts above which the clock falls.
    pub cap_w: f64,
    /// Watts of the idle device.
    pub idle_w: f64,
    /// Clock below the cap, MHz.
    pub clock_mhz: f64,
    /// MHz added per watt above the cap; negative.
    pub clock_mhz_per_w: f64,
    /// Microseconds added to each launch per co-runner.
    pub launch_us_per_runner: f64,
    /// Microseconds added to each launch as soon as there is a co-runner.
    pub launch_us: f64,
}

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
    pub head_room: Option<f64>,
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

struct WordOrTable;

impl<'de> Visitor<'de> for WordOrTable {
    type Value = Believed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word like \"none\", or a table with `model` and its figures")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Believed, E> {
        Ok(Believed(InterferenceSection { model: word.to_owned(), ..InterferenceSection::default() }))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Believed, A::Error> {
        InterferenceSection::deserialize(MapAccessDeserializer::new(table)).map(Believed)
    }
}

impl<'de> Deserialize<'de> for Believed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable)
    }
}
