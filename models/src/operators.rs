//! The operators of an ONNX model with the work of one row: what batch times are predicted from.
//!
//! Shapes are those that an engine infers, with the extents of one row at the inputs. Nothing runs.

mod branches;
mod merged;
mod tensors;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimValue;

use self::tensors::Tensors;
use crate::engine::ort::Inference;
use crate::onnx::{self, GraphDim, TensorType};
use crate::sample::EXTENTS;
use crate::split::infer_types;
use crate::{Format, Loader, ModelFiles};

/// One operator that runs for each batch.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorWork {
    /// Name of the operator in ONNX, such as `Conv`.
    pub operator: String,
    /// Whether it is a convolution in which every output channel reads one input channel.
    pub is_depthwise: bool,
    /// Multiply-accumulate operations for one row.
    pub macs: f64,
    /// Bytes of constants that it reads. A convolution reads its weights again for each element of the first dimension of its input.
    pub weight_bytes: f64,
    /// Bytes of other tensors that it reads and writes for one row.
    pub activation_bytes: f64,
    /// Elements of its outputs for one row.
    pub width: f64,
}

/// The operators of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operators {
    /// In the order of the file, without those that engines merge into others. Of conditions, one branch is there. Operators of other
    /// subgraphs follow those that have them, without work: their shapes are not inferred.
    pub all: Vec<OperatorWork>,
    /// Extents of one row by input, for every input with free dimensions other than the batch.
    pub rows: BTreeMap<String, Vec<u64>>,
}

/// The operators of a model. `rows` has extents of one row by input, for inputs with free dimensions other than the batch; without them,
/// the first extents are used with which the graph is consistent. `is_batched` says whether the first dimension of inputs is the batch.
///
/// # Errors
/// The model is not an ONNX model, or no engine infers its shapes.
pub fn operators(
    loader: &Loader,
    files: &ModelFiles,
    rows: &BTreeMap<String, Vec<u64>>,
    is_batched: bool,
) -> Result<Operators, String> {
    if files.format != Format::Onnx {
        return Err(format!(
            "a {} model does not say its operators: expected an ONNX model",
            files.format.as_str()
        ));
    }
    let graph = onnx::Graph::decode(files).map_err(|error| error.to_string())?;
    onnx::check_external_data(files, &graph.proto).map_err(|error| error.to_string())?;
    let inputs = graph.inputs().map_err(|error| error.to_string())?;
    let skipped = usize::from(is_batched);
    let is_open = |input: &&onnx::GraphTensor| {
        input.dims.iter().skip(skipped).any(|dim| !matches!(dim, GraphDim::Fixed(_)))
    };
    let has_choice = inputs.iter().filter(is_open).any(|input| !rows.contains_key(&input.name));
    let mut reason = String::new();
    for extent in EXTENTS.into_iter().take(if has_choice { EXTENTS.len() } else { 1 }) {
        let shaped = |input: &onnx::GraphTensor| row_of(input, rows.get(&input.name), is_batched, extent);
        let shapes: BTreeMap<String, Vec<u64>> =
            inputs.iter().map(|input| (input.name.clone(), shaped(input))).collect();
        let infer =
            |model: &pb::ModelProto| infer_types(loader, files, &probe(model, &shapes), Inference::Values);
        match infer(&graph.proto) {
            Ok(types) => {
                let open = inputs.iter().filter(is_open);
                let rows =
                    open.map(|input| (input.name.clone(), shaped(input).into_iter().skip(skipped).collect()));
                let (model, types) = branches::unfolded(graph.proto.clone(), types, infer);
                let all = Tensors::new(&model, &shapes, types).operators(&model);
                return Ok(Operators { all, rows: rows.collect() });
            }
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

/// Extents of an input for one row. The first dimension of a row that was given may be the batch or not.
fn row_of(input: &onnx::GraphTensor, row: Option<&Vec<u64>>, is_batched: bool, extent: u64) -> Vec<u64> {
    let missing = row.map_or(0, |row| input.dims.len().saturating_sub(row.len()));
    let dims = input.dims.iter().enumerate();
    dims.map(|(axis, dim)| match (dim, row) {
        (GraphDim::Fixed(fixed), _) => *fixed,
        (_, Some(row)) => axis.checked_sub(missing).and_then(|axis| row.get(axis)).copied().unwrap_or(1),
        (_, None) if axis == 0 && is_batched => 1,
        (_, None) => extent,
    })
    .collect()
}

/// The model with these inputs, in which every tensor is an output.
fn probe(model: &pb::ModelProto, shaped: &BTreeMap<String, Vec<u64>>) -> pb::ModelProto {
    let mut proto = model.clone();
    if let Some(body) = &mut proto.graph {
        for info in &mut body.input {
            let (Some(row), Some(element)) = (shaped.get(&info.name), onnx::element(info)) else { continue };
            let dim = |extent: &u64| {
                let value = i64::try_from(*extent).ok().map(DimValue::DimValue);
                Dimension { value, ..Dimension::default() }
            };
            *info = TensorType::value_info(&info.name, element, row.iter().map(dim).collect());
        }
        body.value_info.clear();
        let made = body.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty());
        body.output =
            made.map(|name| pb::ValueInfoProto { name: name.clone(), ..Default::default() }).collect();
    }
    proto
}

fn subgraphs(node: &pb::NodeProto) -> impl Iterator<Item = &pb::GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}
