//! Element types and shapes that the runtime infers.

use std::collections::BTreeMap;
use std::path::Path;

use ::ort::session::Session;
use ::ort::session::builder::GraphOptimizationLevel;
use ::ort::value::{TensorElementType, ValueType};
use tract_onnx::pb::tensor_proto::DataType;

use super::{OrtLibrary, commit, one_line};
use crate::onnx::{GraphDim, TensorType};

/// What shapes are inferred from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inference {
    /// Operators and the types of their inputs.
    Types,
    /// Values as well, where they are the same for every request: shapes that the model computes from shapes, for example.
    Values,
}

/// Types of the outputs of a model that does not declare them. Outputs that are not tensors are left out. The runtime says of a tensor
/// with an unknown number of dimensions that it has none.
///
/// # Errors
/// What the runtime says of the model.
pub(crate) fn infer_types(
    library: &OrtLibrary,
    model: &[u8],
    folder: Option<&Path>,
    inference: Inference,
) -> Result<BTreeMap<String, TensorType>, String> {
    // The first level computes what depends on constants only, and no more.
    let level = match inference {
        Inference::Types => GraphOptimizationLevel::Disable,
        Inference::Values => GraphOptimizationLevel::Level1,
    };
    let builder = Session::builder(library.environment())
        .and_then(|builder| Ok(builder.with_optimization_level(level)?))
        .and_then(|builder| Ok(builder.with_intra_threads(1)?));
    let session = builder
        .and_then(|builder| commit(builder, model, folder))
        .map_err(|error| one_line(error.message()))?;
    let types = session.outputs().iter().filter_map(|output| {
        let ValueType::Tensor { ty, shape, dimension_symbols } = output.dtype() else { return None };
        let dims = shape.iter().zip(dimension_symbols.iter()).map(|(extent, symbol)| {
            match (u64::try_from(*extent), symbol.as_str()) {
                (Ok(extent), _) => GraphDim::Fixed(extent),
                (Err(_), "") => GraphDim::Unnamed,
                // Names that the runtime makes up for dimensions that it does not know.
                (Err(_), symbol) if symbol.starts_with("unk__") => GraphDim::Unnamed,
                (Err(_), symbol) => GraphDim::Symbol(symbol.to_owned()),
            }
        });
        Some((output.name().to_owned(), TensorType { element: element(*ty)? as i32, dims: dims.collect() }))
    });
    Ok(types.collect())
}

fn element(ty: TensorElementType) -> Option<DataType> {
    Some(match ty {
        TensorElementType::Float32 => DataType::Float,
        TensorElementType::Float64 => DataType::Double,
        TensorElementType::Float16 => DataType::Float16,
        TensorElementType::Bfloat16 => DataType::Bfloat16,
        TensorElementType::Uint8 => DataType::Uint8,
        TensorElementType::Uint16 => DataType::Uint16,
        TensorElementType::Uint32 => DataType::Uint32,
        TensorElementType::Uint64 => DataType::Uint64,
        TensorElementType::Int8 => DataType::Int8,
        TensorElementType::Int16 => DataType::Int16,
        TensorElementType::Int32 => DataType::Int32,
        TensorElementType::Int64 => DataType::Int64,
        TensorElementType::Bool => DataType::Bool,
        TensorElementType::String => DataType::String,
        _ => return None,
    })
}
