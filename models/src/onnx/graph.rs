//! A decoded ONNX file and what it says about its inputs and outputs.

use std::collections::HashSet;

use prost::Message;
use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimValue;
use tract_onnx::pb::type_proto::Value as TypeValue;

use super::datatype;
use crate::{Dim, LoadError, ModelFiles, TensorSpec};

/// A whole ONNX file, decoded.
#[derive(Clone)]
pub(crate) struct Graph {
    /// Name of the model, for errors.
    pub model: String,
    /// The file.
    pub proto: pb::ModelProto,
}

/// One dimension as the file writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GraphDim {
    Fixed(u64),
    Symbol(String),
    Unnamed,
}

/// One input or output as the file writes it.
#[derive(Clone, Debug)]
pub(crate) struct GraphTensor {
    pub name: String,
    pub datatype: oip::Datatype,
    pub dims: Vec<GraphDim>,
}

impl GraphTensor {
    pub(crate) fn spec(&self) -> TensorSpec {
        let dims = self
            .dims
            .iter()
            .map(|dim| match dim {
                GraphDim::Fixed(extent) => Dim::Fixed(*extent),
                GraphDim::Symbol(_) | GraphDim::Unnamed => Dim::Free,
            })
            .collect();
        TensorSpec { name: self.name.clone(), datatype: self.datatype, dims, optional: false }
    }
}

impl Graph {
    /// Decodes a whole file. Truncated files are refused: a truncated message fails to decode, and a file that ends
    /// between two top-level messages lacks the graph or the operator sets, which come last except for metadata.
    pub(crate) fn decode(files: &ModelFiles) -> Result<Self, LoadError> {
        let model = files.name.to_string();
        let incomplete = |reason: String| LoadError::Files { model: model.clone(), reason };
        let proto = pb::ModelProto::decode(files.bytes.as_ref()).map_err(|error| {
            incomplete(format!(
                "model.onnx is not a complete ONNX file ({} bytes): {error}",
                files.bytes.len()
            ))
        })?;
        let Some(graph) = &proto.graph else {
            return Err(incomplete("model.onnx is not a complete ONNX file: it holds no graph".to_owned()));
        };
        if proto.opset_import.is_empty() {
            return Err(incomplete(
                "model.onnx is not a complete ONNX file: it names no operator set".to_owned(),
            ));
        }
        if graph.output.is_empty() {
            return Err(incomplete("model.onnx has a graph without outputs".to_owned()));
        }
        Ok(Self { model, proto })
    }

    /// The file again, after changes.
    pub(crate) fn encode(&self) -> bytes::Bytes {
        self.proto.encode_to_vec().into()
    }

    /// Inputs that a request gives, in graph order: those without a value in the file.
    pub(crate) fn inputs(&self) -> Result<Vec<GraphTensor>, LoadError> {
        let Some(graph) = &self.proto.graph else { return Ok(Vec::new()) };
        let given: HashSet<&str> = graph
            .initializer
            .iter()
            .map(|tensor| tensor.name.as_str())
            .chain(graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref().map(|v| v.name.as_str())))
            .collect();
        let asked = graph.input.iter().filter(|input| !given.contains(input.name.as_str()));
        asked.map(|input| self.tensor("input", input)).collect()
    }

    /// Outputs in graph order.
    pub(crate) fn outputs(&self) -> Result<Vec<GraphTensor>, LoadError> {
        let Some(graph) = &self.proto.graph else { return Ok(Vec::new()) };
        graph.output.iter().map(|output| self.tensor("output", output)).collect()
    }

    fn tensor(&self, kind: &str, info: &pb::ValueInfoProto) -> Result<GraphTensor, LoadError> {
        let refuse = |reason: String| LoadError::Signature {
            model: self.model.clone(),
            tensor: format!("{kind} `{}`", info.name),
            reason,
        };
        let Some(TypeValue::TensorType(tensor)) = info.r#type.as_ref().and_then(|t| t.value.as_ref()) else {
            return Err(refuse("is not a tensor: sequences, maps and optionals cannot be served".to_owned()));
        };
        let Some(shape) = &tensor.shape else {
            return Err(refuse(
                "declares no shape: run `onnx.shape_inference.infer_shapes` on the file before publishing it"
                    .to_owned(),
            ));
        };
        if shape.dim.len() > oip::Shape::MAX_RANK {
            return Err(refuse(format!(
                "has {} dimensions: expected at most {}",
                shape.dim.len(),
                oip::Shape::MAX_RANK
            )));
        }
        let dims = shape.dim.iter().map(|dim| match &dim.value {
            Some(DimValue::DimValue(extent)) => {
                u64::try_from(*extent).map_or(GraphDim::Unnamed, GraphDim::Fixed)
            }
            Some(DimValue::DimParam(symbol)) if is_a_name(symbol) => GraphDim::Symbol(symbol.clone()),
            Some(DimValue::DimParam(_)) | None => GraphDim::Unnamed,
        });
        Ok(GraphTensor {
            name: info.name.clone(),
            datatype: datatype(tensor.elem_type).map_err(refuse)?,
            dims: dims.collect(),
        })
    }
}

/// Exporters that do not know a dimension's meaning number it (`unk__214`, `p2o.DynamicDimension.0`): such a
/// symbol says nothing about which other dimension it equals.
fn is_a_name(symbol: &str) -> bool {
    !symbol.is_empty()
        && symbol != "?"
        && !symbol.starts_with("unk__")
        && !symbol.contains("DynamicDimension")
}
