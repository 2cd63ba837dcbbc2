//! The file of a stage, from the parts of the file of the whole.

use std::collections::BTreeSet;

use model_split::Stage;
use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimValue;

use super::SplitModel;
use super::description::sparse_name;
use crate::onnx::{GraphDim, TensorType, has_shape};

impl SplitModel {
    /// The model of a stage. With `untyped_outputs`, its outputs have no types, so that an engine infers them.
    pub(super) fn assemble(&self, stage: &Stage, untyped_outputs: bool) -> pb::ModelProto {
        let mut proto = self.proto_without_graph();
        let Some(body) = self.body() else { return proto };
        let constants: BTreeSet<&str> = stage.constants.iter().map(String::as_str).collect();
        let nodes: Vec<pb::NodeProto> =
            stage.nodes.iter().filter_map(|&index| body.node.get(index)).cloned().collect();
        let made: BTreeSet<&str> = nodes.iter().flat_map(|node| &node.output).map(String::as_str).collect();
        let ends: BTreeSet<&str> = stage.inputs.iter().chain(&stage.outputs).map(String::as_str).collect();
        let is_there = |name: &str| made.contains(name) || ends.contains(name) || constants.contains(name);
        let mut input: Vec<pb::ValueInfoProto> =
            stage.inputs.iter().filter_map(|name| self.value_info(name)).collect();
        // Constants that the file lists among the inputs are listed again: old versions of the format ask for it, and in new ones
        // an engine must not fold them.
        input.extend(body.input.iter().filter(|info| constants.contains(info.name.as_str())).cloned());
        let output = stage.outputs.iter().filter_map(|name| match untyped_outputs {
            true => Some(pb::ValueInfoProto { name: name.clone(), ..Default::default() }),
            false => self.value_info(name),
        });
        let output = output.collect();
        let value_info = body
            .value_info
            .iter()
            .filter(|info| made.contains(info.name.as_str()) && !ends.contains(info.name.as_str()));
        let value_info = value_info.cloned().collect();
        let initializer = body
            .initializer
            .iter()
            .filter(|tensor| constants.contains(tensor.name.as_str()))
            .cloned()
            .collect();
        let sparse = body.sparse_initializer.iter();
        let sparse =
            sparse.filter(|tensor| sparse_name(tensor).is_some_and(|name| constants.contains(name.as_str())));
        let sparse_initializer = sparse.cloned().collect();
        let annotations = body
            .quantization_annotation
            .iter()
            .filter(|note| note.tensor_name.as_deref().is_some_and(is_there));
        let quantization_annotation = annotations.cloned().collect();
        proto.graph = Some(pb::GraphProto {
            node: nodes,
            name: body.name.clone(),
            initializer,
            sparse_initializer,
            doc_string: body.doc_string.clone(),
            input,
            output,
            value_info,
            quantization_annotation,
        });
        proto
    }

    fn proto_without_graph(&self) -> pb::ModelProto {
        pb::ModelProto {
            ir_version: self.proto.ir_version,
            opset_import: self.proto.opset_import.clone(),
            producer_name: self.proto.producer_name.clone(),
            producer_version: self.proto.producer_version.clone(),
            domain: self.proto.domain.clone(),
            model_version: self.proto.model_version,
            doc_string: self.proto.doc_string.clone(),
            graph: None,
            metadata_props: self.proto.metadata_props.clone(),
            training_info: Vec::new(),
            functions: Vec::new(),
        }
    }

    /// An input or output as the file has it, or with the type that was learned.
    fn value_info(&self, name: &str) -> Option<pb::ValueInfoProto> {
        let body = self.body()?;
        let written = body.input.iter().chain(&body.output).find(|info| info.name == name);
        if let Some(info) = written.filter(|info| has_shape(info)) {
            return Some(info.clone());
        }
        let known = self.types.get(name)?;
        let mut dims: Vec<Dimension> = known.dims.iter().map(dimension).collect();
        // The outputs of a graph whose batch was freed declare no shape.
        let is_between = written.is_none();
        if let (true, true, Some(first)) = (self.is_batched, is_between, dims.first_mut()) {
            *first = self.batch_dimension();
        }
        Some(TensorType::value_info(name, known.element, dims))
    }

    /// The first dimension of the first input.
    fn batch_dimension(&self) -> Dimension {
        let input = self.graph.description().inputs.first().and_then(|name| self.types.get(name));
        match input.and_then(|input| input.dims.first()) {
            Some(dim @ GraphDim::Symbol(_)) => dimension(dim),
            _ => Dimension::default(),
        }
    }
}

pub(super) fn dimension(dim: &GraphDim) -> Dimension {
    let value = match dim {
        GraphDim::Fixed(extent) => Some(DimValue::DimValue(i64::try_from(*extent).unwrap_or(i64::MAX))),
        GraphDim::Symbol(symbol) => Some(DimValue::DimParam(symbol.clone())),
        GraphDim::Unnamed => None,
    };
    Dimension { value, ..Default::default() }
}
