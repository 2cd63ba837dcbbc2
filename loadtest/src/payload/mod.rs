//! What is sent: tensors made from a model's own metadata, or samples from a file.

mod generated;
mod samples;

use oip::metadata::{ModelMetadata, TensorMetadata};
use oip::{InferRequest, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use generated::{OPEN, declared};
pub use samples::Samples;

use crate::error::LoadError;

/// Different requests of a model and number of rows, so that no cache makes a server look faster than it is.
const VARIANTS: usize = 16;
/// Bytes of generated tensors of a model and number of rows.
const VARIANT_BYTES: usize = 32 << 20;

/// How payloads are made where the metadata leaves a choice. Names are those of inputs, or MODEL/INPUT.
#[derive(Clone, Debug, Default)]
pub struct Payloads {
    /// Extents of inputs, with or without the batch dimension.
    pub shapes: BTreeMap<String, Vec<u64>>,
    /// Values of inputs: from and to, both included.
    pub ranges: BTreeMap<String, (f64, f64)>,
    /// Whether they may be for inputs of models that the workload does not have.
    pub of_other_models: bool,
    /// Recorded requests by model; those under the empty name are for every model that has none of its own.
    pub samples: BTreeMap<String, Arc<Samples>>,
}

/// A request, and what its answer is known to be.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub request: InferRequest,
    pub expected: Option<Arc<Vec<Tensor>>>,
}

impl Payloads {
    /// Whether all that was given is for inputs and models that there are; `known` by what the server calls them.
    pub(crate) fn check(&self, known: &BTreeMap<String, ModelMetadata>) -> Result<(), LoadError> {
        if self.of_other_models {
            return Ok(());
        }
        let is_input = |name: &String| {
            known.iter().any(|(model, metadata)| {
                metadata.inputs.iter().any(|input| {
                    *name == input.name
                        || name.strip_prefix(model.as_str()).and_then(|rest| rest.strip_prefix('/'))
                            == Some(&input.name)
                })
            })
        };
        let shapes = self.shapes.keys().map(|name| ("--shape", name));
        let ranges = self.ranges.keys().map(|name| ("--range", name));
        if let Some((option, name)) = shapes.chain(ranges).find(|(_, name)| !is_input(name)) {
            return Err(LoadError::option(option, format!("no model of the workload has an input `{name}`")));
        }
        match self.samples.keys().find(|name| !name.is_empty() && !known.contains_key(*name)) {
            Some(name) => {
                Err(LoadError::option("--samples", format!("the server is asked for no model `{name}`")))
            }
            None => Ok(()),
        }
    }

    /// Inputs of a model that need a shape and have none.
    pub(crate) fn open_inputs<'a>(&'a self, metadata: &'a ModelMetadata) -> Vec<&'a TensorMetadata> {
        if self.samples.contains_key(&metadata.name) || self.samples.contains_key("") {
            return Vec::new();
        }
        generated::open_inputs(self, metadata).collect()
    }

    /// One request of one row.
    pub(crate) fn one(&self, metadata: &ModelMetadata, seed: u64) -> Result<InferRequest, LoadError> {
        generated::request(self, metadata, 1, seed)
    }

    /// Requests of `rows` rows for a model that the server describes as `metadata`; at least one.
    pub(crate) fn of(
        &self,
        metadata: &ModelMetadata,
        rows: u32,
        seed: u64,
    ) -> Result<Vec<Payload>, LoadError> {
        let model = &metadata.name;
        if let Some(samples) = self.samples.get(model).or_else(|| self.samples.get("")) {
            return samples.of(model, rows);
        }
        if metadata.inputs.is_empty() {
            let problem = "the server does not say what it takes: give recorded requests (--samples)";
            return Err(LoadError::model(model, problem));
        }
        let mut made = Vec::new();
        let mut bytes = 0;
        while made.len() < VARIANTS && (made.is_empty() || bytes < VARIANT_BYTES) {
            let request = generated::request(self, metadata, rows, seed.wrapping_add(made.len() as u64))?;
            bytes += generated::bytes(&request);
            made.push(Payload { request, expected: None });
        }
        Ok(made)
    }
}
