//! Freeing a batch dimension that an export fixed at 1.
//!
//! Most exporters write the batch they traced with into the graph: as the first dimension of inputs and
//! outputs, and as the first target of reshapes. Both can be undone where the graph treats rows alike. Whether
//! it does cannot be read off the file, so the loader runs the changed graph and compares
//! ([`crate::batching`]).

use std::collections::HashMap;

use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimValue;
use tract_onnx::pb::type_proto::Value as TypeValue;

use super::{Graph, GraphDim, GraphTensor};
use crate::LoadError;

/// Name of the freed dimension.
const BATCH: &str = "tessera_batch";

/// ONNX's number for 64-bit whole numbers.
const INT64: i32 = pb::tensor_proto::DataType::Int64 as i32;

/// Frees the batch dimension of a graph, or says which tensor stands in the way. Gives the outputs as they now
/// are; the graph itself no longer declares their shapes.
pub(crate) fn free_batch(graph: &mut Graph) -> Result<Vec<GraphTensor>, LoadError> {
    let (inputs, mut outputs) = (graph.inputs()?, graph.outputs()?);
    for (kind, tensor) in inputs.iter().map(|t| ("input", t)).chain(outputs.iter().map(|t| ("output", t))) {
        if !matches!(tensor.dims.first(), Some(GraphDim::Fixed(1) | GraphDim::Symbol(_) | GraphDim::Unnamed))
        {
            return Err(LoadError::Batch {
                model: graph.model.clone(),
                reason: format!(
                    "free_batch: {kind} `{}` has no first dimension of 1 that could be freed; expected \
                     free_batch = false",
                    tensor.name
                ),
            });
        }
    }
    for output in &mut outputs {
        if let Some(first) = output.dims.first_mut() {
            *first = GraphDim::Symbol(BATCH.to_owned());
        }
    }
    let ir_version = graph.proto.ir_version;
    if let Some(body) = &mut graph.proto.graph {
        let named: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        let requested = body.input.iter_mut().filter(|info| named.contains(&info.name.as_str()));
        requested.for_each(free_first_dimension);
        body.value_info.clear();
        body.output.iter_mut().for_each(drop_shape);
        free_reshapes(body, ir_version);
    }
    Ok(outputs)
}

fn free_first_dimension(info: &mut pb::ValueInfoProto) {
    let Some(TypeValue::TensorType(tensor)) = info.r#type.as_mut().and_then(|t| t.value.as_mut()) else {
        return;
    };
    if let Some(first) = tensor.shape.as_mut().and_then(|shape| shape.dim.first_mut()) {
        first.value = Some(DimValue::DimParam(BATCH.to_owned()));
    }
}

fn drop_shape(info: &mut pb::ValueInfoProto) {
    if let Some(TypeValue::TensorType(tensor)) = info.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        tensor.shape = None;
    }
}

/// Lets every reshape whose first target is a constant 1 keep its input's first dimension instead (ONNX writes
/// that as 0). Shared constants are not changed: each reshape gets its own.
fn free_reshapes(body: &mut pb::GraphProto, ir_version: i64) {
    let constants = constant_shapes(body);
    let mut added = Vec::new();
    for node in body.node.iter_mut().filter(|node| node.op_type == "Reshape") {
        if node.attribute.iter().any(|a| a.name == "allowzero" && a.i != 0) {
            continue;
        }
        // Before operator set 5 the target was an attribute.
        if let Some(target) = node.attribute.iter_mut().find(|a| a.name == "shape") {
            if let Some(freed) = freed(&target.ints) {
                target.ints = freed;
            }
            continue;
        }
        let Some(name) = node.input.get_mut(1) else { continue };
        if let Some(freed) = constants.get(name.as_str()).and_then(|target| freed(target)) {
            *name = format!("{BATCH}_{}_{name}", added.len());
            added.push(shape_constant(name.clone(), freed));
        }
    }
    if ir_version < 4 {
        // Old files list every constant among the inputs.
        body.input.extend(added.iter().map(declaration));
    }
    body.initializer.extend(added);
}

fn freed(target: &[i64]) -> Option<Vec<i64>> {
    let (first, rest) = target.split_first()?;
    (*first == 1 && !rest.is_empty()).then(|| std::iter::once(0).chain(rest.iter().copied()).collect())
}

/// Constant vectors of 64-bit whole numbers by name, from initializers and `Constant` nodes.
pub(crate) fn constant_shapes(body: &pb::GraphProto) -> HashMap<String, Vec<i64>> {
    let initializers =
        body.initializer.iter().filter_map(|tensor| Some((tensor.name.clone(), whole_numbers(tensor)?)));
    let nodes = body.node.iter().filter(|node| node.op_type == "Constant").filter_map(|node| {
        let attribute = node.attribute.iter().find(|a| a.name == "value" || a.name == "value_ints")?;
        let target = match &attribute.t {
            Some(tensor) => whole_numbers(tensor)?,
            None => attribute.ints.clone(),
        };
        Some((node.output.first()?.clone(), target))
    });
    initializers.chain(nodes).collect()
}

fn whole_numbers(tensor: &pb::TensorProto) -> Option<Vec<i64>> {
    if tensor.data_type != INT64 || tensor.dims.len() != 1 || !tensor.external_data.is_empty() {
        return None;
    }
    if tensor.raw_data.is_empty() {
        return Some(tensor.int64_data.clone());
    }
    let chunks = tensor.raw_data.chunks_exact(size_of::<i64>());
    chunks.map(|chunk| chunk.try_into().ok().map(i64::from_le_bytes)).collect()
}

fn shape_constant(name: String, target: Vec<i64>) -> pb::TensorProto {
    pb::TensorProto {
        name,
        dims: vec![i64::try_from(target.len()).unwrap_or(i64::MAX)],
        data_type: INT64,
        int64_data: target,
        ..pb::TensorProto::default()
    }
}

fn declaration(tensor: &pb::TensorProto) -> pb::ValueInfoProto {
    let dims = tensor
        .dims
        .iter()
        .map(|&extent| Dimension { value: Some(DimValue::DimValue(extent)), ..Dimension::default() });
    let shape = pb::TensorShapeProto { dim: dims.collect() };
    let tensor_type = pb::type_proto::Tensor { elem_type: tensor.data_type, shape: Some(shape) };
    let value = Some(TypeValue::TensorType(tensor_type));
    pb::ValueInfoProto {
        name: tensor.name.clone(),
        r#type: Some(pb::TypeProto { value, ..pb::TypeProto::default() }),
        ..pb::ValueInfoProto::default()
    }
}
