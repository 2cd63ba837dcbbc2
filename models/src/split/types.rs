//! Element types and shapes of tensors inside of a graph, as engines infer them.

use std::collections::BTreeMap;

use prost::Message;
use tract_onnx::pb;

use crate::engine::ort::Inference;
use crate::engine::{ort, tract};
use crate::onnx::{self, TensorType};
use crate::{Loader, ModelFiles};

/// Types of the outputs of a model that does not declare them. Those that are not tensors are left out.
///
/// # Errors
/// What each engine says.
pub(crate) fn infer(
    loader: &Loader,
    files: &ModelFiles,
    probe: &pb::ModelProto,
    inference: Inference,
) -> Result<BTreeMap<String, TensorType>, String> {
    let by_runtime = match &loader.ort {
        Ok(library) => ort::infer_types(library, &probe.encode_to_vec(), files.folder(), inference),
        Err(missing) => Err(missing.to_string()),
    };
    by_runtime.or_else(|reason| {
        let graph = onnx::Graph { model: files.name.to_string(), proto: probe.clone() };
        tract::infer_types(&graph, files.folder())
            .map_err(|other| format!("no engine infers its types: ort: {reason}; tract: {other}"))
    })
}
