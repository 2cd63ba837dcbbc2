//! Syntax of an `interference` section.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// `[interference]`: the name of a model, or a table with the name as `model` and its parameters. Not validated here.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InterferenceSection {
    /// Name of the model.
    pub model: String,
    /// Weights of the model's terms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coefficients: Vec<f64>,
    /// `[interference.power.KIND]`: power and clock of each device type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub power: BTreeMap<String, PowerSection>,
}

/// `[interference.power.KIND]`, see `gpulet_core::interference::DevicePower`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    model: String,
    #[serde(default)]
    coefficients: Vec<f64>,
    #[serde(default)]
    power: BTreeMap<String, PowerSection>,
}

struct WordOrTable;

impl<'de> Visitor<'de> for WordOrTable {
    type Value = InterferenceSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word like \"none\", or a table with `model` and its figures")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<InterferenceSection, E> {
        Ok(InterferenceSection { model: word.to_owned(), ..InterferenceSection::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<InterferenceSection, A::Error> {
        let Table { model, coefficients, power } = Table::deserialize(MapAccessDeserializer::new(table))?;
        Ok(InterferenceSection { model, coefficients, power })
    }
}

impl<'de> Deserialize<'de> for InterferenceSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable)
    }
}
