//! What a server's model configuration says about shapes.

use std::collections::BTreeMap;

use oip::proto;
use serde::{Deserialize, Deserializer};

/// The part of a `ModelConfig` that is about shapes.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    input: Vec<Input>,
    #[serde(default)]
    model_warmup: Vec<WarmUp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Input {
    #[serde(default)]
    name: String,
    #[serde(default)]
    dims: Vec<Extent>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct WarmUp {
    #[serde(default)]
    inputs: BTreeMap<String, Sample>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Sample {
    #[serde(default)]
    dims: Vec<Extent>,
}

/// An extent. Protobuf's JSON has 64-bit numbers as text.
#[derive(Clone, Copy, Debug)]
struct Extent(i64);

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(i64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(extent) => Ok(Self(extent)),
            Either::Text(text) => text.parse().map(Self).map_err(serde::de::Error::custom),
        }
    }
}

/// The extents, if all are fixed.
fn fixed(dims: &[Extent]) -> Option<Vec<u64>> {
    dims.iter().map(|extent| u64::try_from(extent.0).ok()).collect()
}

impl Config {
    /// Shapes of rows by input, for each warm-up sample.
    pub fn samples(&self) -> impl Iterator<Item = BTreeMap<String, Vec<u64>>> {
        self.model_warmup.iter().map(|sample| {
            let inputs = sample.inputs.iter();
            inputs.filter_map(|(name, input)| Some((name.clone(), fixed(&input.dims)?))).collect()
        })
    }

    /// Dims by input, without the batch.
    pub fn rows(&self) -> BTreeMap<String, Vec<i64>> {
        let dims = |input: &Input| input.dims.iter().map(|extent| extent.0).collect();
        self.input.iter().map(|input| (input.name.clone(), dims(input))).collect()
    }

    /// Shapes of rows of inputs whose dims are all fixed.
    pub fn fixed_rows(&self) -> BTreeMap<String, Vec<u64>> {
        self.input.iter().filter_map(|input| Some((input.name.clone(), fixed(&input.dims)?))).collect()
    }
}

impl From<proto::ModelConfig> for Config {
    fn from(config: proto::ModelConfig) -> Self {
        let extents = |dims: Vec<i64>| dims.into_iter().map(Extent).collect();
        let input = |input: proto::ModelInput| Input { name: input.name, dims: extents(input.dims) };
        let sample = |warm_up: proto::ModelWarmup| WarmUp {
            inputs: warm_up
                .inputs
                .into_iter()
                .map(|(name, sample)| (name, Sample { dims: extents(sample.dims) }))
                .collect(),
        };
        Self {
            input: config.input.into_iter().map(input).collect(),
            model_warmup: config.model_warmup.into_iter().map(sample).collect(),
        }
    }
}
