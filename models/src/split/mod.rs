//! ONNX models split into stages.
//!
//! [`SplitModel`] describes the graph of a file for [`model_split`], which decides where to split, and makes the files of stages. A stage
//! is an ONNX model of its own: the nodes as they are in the file, the weights that they read, and inputs and outputs with the types
//! that an engine infers.
//!
//! Refused, by name: functions of the model's own, training information, and subgraphs with values that are not tensors. The decoder
//! does not keep all of what these say, so a stage could differ from the model.

mod assembly;
mod config;
mod description;
mod error;
#[cfg(test)]
mod tests;
mod types;
mod weights;

use std::collections::BTreeMap;
use std::path::Path;

use model_split::{Graph, Stage};
use prost::Message;
use tract_onnx::pb;

use crate::engine::ort::Inference;
use crate::onnx::{self, GraphDim, TensorType};
use crate::{Format, Loader, ModelFiles, ModelName, Signature};
pub use config::PipelineConfig;
pub use error::SplitModelError;
pub(crate) use types::infer as infer_types;

/// An ONNX model that can be split.
pub struct SplitModel {
    files: ModelFiles,
    proto: pb::ModelProto,
    graph: Graph,
    /// Types of inputs and outputs, and of the tensors that were [learned](SplitModel::learn_types).
    types: BTreeMap<String, TensorType>,
    /// Whether the first dimension of every tensor between stages is the batch.
    is_batched: bool,
}

impl SplitModel {
    /// Decodes a model. With `free_batch`, its batch dimension is freed first, as [`LoadOptions::free_batch`](crate::LoadOptions) does.
    ///
    /// # Errors
    /// A file that is not valid, or has something that stages would lose.
    pub fn read(files: &ModelFiles, free_batch: bool) -> Result<Self, SplitModelError> {
        let refuse = |field: &str, reason: &str| SplitModelError::Refused {
            model: files.name.to_string(),
            field: field.to_owned(),
            reason: reason.to_owned(),
        };
        if files.format != Format::Onnx {
            let reason = format!("a {} model cannot be split: expected an ONNX model", files.format.as_str());
            return Err(refuse("format", &reason));
        }
        let mut decoded = onnx::Graph::decode(files)?;
        onnx::check_external_data(files, &decoded.proto)?;
        let mut outputs = decoded.outputs()?;
        if free_batch {
            outputs = onnx::free_batch(&mut decoded)?;
        }
        let inputs = decoded.inputs()?;
        let body = decoded.proto.graph.take().unwrap_or_default();
        description::check(&decoded.proto, &body).map_err(|(field, reason)| refuse(&field, &reason))?;
        let names =
            |tensors: &[onnx::GraphTensor]| tensors.iter().map(|tensor| tensor.name.clone()).collect();
        let description = description::describe(&body, names(&inputs), names(&outputs));
        let graph = Graph::new(description)
            .map_err(|error| SplitModelError::Graph { model: files.name.to_string(), error })?;
        let declared = body.input.iter().chain(&body.output);
        let elements: BTreeMap<&str, i32> =
            declared.filter_map(|info| Some((info.name.as_str(), onnx::element(info)?))).collect();
        let types = inputs.into_iter().chain(outputs).filter_map(|tensor| {
            let element = elements.get(tensor.name.as_str()).copied()?;
            Some((tensor.name, TensorType { element, dims: tensor.dims }))
        });
        let types = types.collect();
        let proto = pb::ModelProto { graph: Some(body), ..decoded.proto };
        Ok(Self { files: files.clone(), proto, graph, types, is_batched: false })
    }

    /// The graph, to be split.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The part of the model that makes these tensors, to be run with the signature. It declares no types of its outputs, because a wrong
    /// one would mislead the engine.
    ///
    /// # Errors
    /// A tensor whose type was not learned.
    pub fn probe(&self, tensors: &[String]) -> Result<(ModelFiles, Signature), SplitModelError> {
        let part = self.graph.part_making(tensors);
        self.check_types(&part)?;
        let files = self
            .files
            .with_content(self.files.name.clone(), self.assemble(&part, true).encode_to_vec().into());
        let spec = |name: &String| {
            let known = self.types.get(name)?;
            let datatype = onnx::datatype(known.element).ok()?;
            Some(onnx::GraphTensor { name: name.clone(), datatype, dims: known.dims.clone() }.spec())
        };
        let specs = |names: &[String]| names.iter().filter_map(spec).collect();
        let signature =
            Signature { inputs: specs(&part.inputs), outputs: specs(&part.outputs), max_batch: 0 };
        Ok((files, signature))
    }

    /// Says that the first dimension of every tensor between stages is the batch, as that of the model's inputs is.
    pub fn set_batched(&mut self) {
        self.is_batched = true;
    }

    /// Finds out the element types and shapes of these tensors: what ONNX Runtime infers, or tract, or else what the file says.
    ///
    /// Tensors whose type is not found have none afterwards ([`SplitModel::has_type`]), and cannot cross a split point.
    ///
    /// # Errors
    /// No engine reads the graph, and the file does not say.
    pub fn learn_types(&mut self, loader: &Loader, tensors: &[String]) -> Result<(), SplitModelError> {
        let unknown: Vec<String> =
            tensors.iter().filter(|name| !self.types.contains_key(*name)).cloned().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let part = self.graph.part_making(&unknown);
        let probe = self.assemble(&part, true);
        let inferred = types::infer(loader, &self.files, &probe, Inference::Types);
        let declared = self.body().map(|body| body.value_info.as_slice()).unwrap_or_default();
        let mut found: BTreeMap<String, TensorType> =
            declared.iter().filter_map(|info| Some((info.name.clone(), TensorType::of(info)?))).collect();
        found.retain(|name, _| unknown.contains(name));
        match inferred {
            Ok(inferred) => found.extend(inferred),
            Err(reason) if found.is_empty() => {
                return Err(SplitModelError::Types { model: self.files.name.to_string(), reason });
            }
            Err(reason) => tracing::debug!(model = %self.files.name, reason, "types are as the file says"),
        }
        self.types.extend(found);
        Ok(())
    }

    /// Whether the type of a tensor is known, and one that requests can have.
    pub fn has_type(&self, tensor: &str) -> bool {
        self.types.get(tensor).is_some_and(|known| onnx::datatype(known.element).is_ok())
    }

    /// Corrects what is known of the dimensions of a tensor by the shapes that it had in runs. A dimension that differed between runs is
    /// free. One that did not is fixed, if `varied` says that every free dimension of the inputs had several extents.
    pub fn observe(&mut self, tensor: &str, shapes: &[Vec<u64>], varied: bool) {
        let (Some(known), Some(first)) = (self.types.get_mut(tensor), shapes.first()) else { return };
        if known.dims.len() != first.len() {
            known.dims = vec![GraphDim::Unnamed; first.len()];
        }
        for (axis, (dim, extent)) in known.dims.iter_mut().zip(first).enumerate() {
            let is_constant = shapes.iter().all(|shape| shape.get(axis) == Some(extent));
            match dim {
                GraphDim::Fixed(fixed) if !is_constant || fixed != extent => *dim = GraphDim::Unnamed,
                GraphDim::Symbol(_) | GraphDim::Unnamed if is_constant && varied => {
                    *dim = GraphDim::Fixed(*extent)
                }
                _ => {}
            }
        }
    }

    /// A stage as a model in memory. Its weights in other files stay in the files of the whole model.
    ///
    /// # Errors
    /// A tensor between stages whose type was not learned.
    pub fn stage(&self, stage: &Stage, name: &ModelName) -> Result<ModelFiles, SplitModelError> {
        self.check_types(stage)?;
        Ok(self.files.with_content(name.clone(), self.assemble(stage, false).encode_to_vec().into()))
    }

    /// Writes a stage into a folder: `model.onnx`, and `model.onnx.data` if it has weights of other files.
    ///
    /// # Errors
    /// A tensor between stages whose type was not learned, or a file that cannot be read or written.
    pub fn write_stage(&self, stage: &Stage, folder: &Path) -> Result<(), SplitModelError> {
        self.check_types(stage)?;
        let mut proto = self.assemble(stage, false);
        let failed = |(path, error): (String, std::io::Error)| SplitModelError::File { path, error };
        weights::move_external_data(&mut proto, self.files.folder(), folder).map_err(failed)?;
        let path = folder.join("model.onnx");
        std::fs::write(&path, proto.encode_to_vec())
            .map_err(|error| failed((path.display().to_string(), error)))
    }

    /// Bytes of the weights of a stage, whichever file they are in, and of constants that its nodes make.
    pub fn weights_bytes(&self, stage: &Stage) -> u64 {
        self.body().map_or(0, |body| weights::bytes(body, stage))
    }

    fn body(&self) -> Option<&pb::GraphProto> {
        self.proto.graph.as_ref()
    }

    fn check_types(&self, stage: &Stage) -> Result<(), SplitModelError> {
        let mut tensors = stage.inputs.iter().chain(&stage.outputs);
        match tensors.find(|name| !self.has_type(name)) {
            None => Ok(()),
            Some(tensor) => Err(SplitModelError::Types {
                model: self.files.name.to_string(),
                reason: format!(
                    "the type of tensor `{tensor}` is not known: expected one in the file's `value_info`"
                ),
            }),
        }
    }
}
