//! Element types and shapes that tract infers.

use std::collections::BTreeMap;
use std::path::Path;

use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::prelude::DatumType;
use tract_onnx::tract_hir::infer::{Factoid, GenericFactoid, InferenceModelExt};

use super::{guarded, parse};
use crate::onnx::{Graph, GraphDim, TensorType};

/// Types of the outputs of a model that does not declare them. Outputs of which tract does not know the number of dimensions are
/// left out.
///
/// # Errors
/// What tract says of the model.
pub(crate) fn infer_types(
    graph: &Graph,
    folder: Option<&Path>,
) -> Result<BTreeMap<String, TensorType>, String> {
    let mut model = guarded(|| parse(graph, folder.and_then(Path::to_str)))?;
    guarded(|| model.analyse(false).map(|_| ()))?;
    let names = graph.proto.graph.iter().flat_map(|body| &body.output).map(|info| info.name.clone());
    let types = names.enumerate().filter_map(|(index, name)| {
        let fact = model.output_fact(index).ok()?;
        let element = element(fact.datum_type.concretize()?)? as i32;
        let rank = usize::try_from(fact.shape.rank().concretize()?).ok()?;
        let dims = (0..rank).map(|axis| match fact.shape.dim(axis) {
            Some(GenericFactoid::Only(dim)) => dim
                .to_i64()
                .ok()
                .and_then(|extent| u64::try_from(extent).ok())
                .map_or(GraphDim::Unnamed, GraphDim::Fixed),
            _ => GraphDim::Unnamed,
        });
        Some((name, TensorType { element, dims: dims.collect() }))
    });
    Ok(types.collect())
}

fn element(datum: DatumType) -> Option<DataType> {
    Some(match datum {
        DatumType::F32 => DataType::Float,
        DatumType::F64 => DataType::Double,
        DatumType::F16 => DataType::Float16,
        DatumType::U8 => DataType::Uint8,
        DatumType::U16 => DataType::Uint16,
        DatumType::U32 => DataType::Uint32,
        DatumType::U64 => DataType::Uint64,
        DatumType::I8 => DataType::Int8,
        DatumType::I16 => DataType::Int16,
        DatumType::I32 => DataType::Int32,
        DatumType::I64 => DataType::Int64,
        DatumType::Bool => DataType::Bool,
        DatumType::String => DataType::String,
        _ => return None,
    })
}
