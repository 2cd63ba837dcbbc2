//! Element types and shapes of tensors, as files declare them.

use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimValue;
use tract_onnx::pb::type_proto::Value as TypeValue;

use super::GraphDim;

/// Element type and dimensions of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorType {
    /// ONNX's number of the element type.
    pub element: i32,
    pub dims: Vec<GraphDim>,
}

impl TensorType {
    /// What a file says of a tensor; `None` if it does not say all.
    pub(crate) fn of(info: &pb::ValueInfoProto) -> Option<Self> {
        let TypeValue::TensorType(tensor) = info.r#type.as_ref()?.value.as_ref()?;
        let dims = tensor.shape.as_ref()?.dim.iter().map(|dim| match &dim.value {
            Some(DimValue::DimValue(extent)) => {
                u64::try_from(*extent).map_or(GraphDim::Unnamed, GraphDim::Fixed)
            }
            Some(DimValue::DimParam(symbol)) if !symbol.is_empty() => GraphDim::Symbol(symbol.clone()),
            _ => GraphDim::Unnamed,
        });
        Some(Self { element: tensor.elem_type, dims: dims.collect() })
    }

    /// A declaration.
    pub(crate) fn value_info(name: &str, element: i32, dim: Vec<Dimension>) -> pb::ValueInfoProto {
        let shape = Some(pb::TensorShapeProto { dim });
        let value = Some(TypeValue::TensorType(pb::type_proto::Tensor { elem_type: element, shape }));
        let r#type = Some(pb::TypeProto { value, ..Default::default() });
        pb::ValueInfoProto { name: name.to_owned(), r#type, ..Default::default() }
    }
}

/// ONNX's number of the element type of a declared tensor.
pub(crate) fn element(info: &pb::ValueInfoProto) -> Option<i32> {
    let TypeValue::TensorType(tensor) = info.r#type.as_ref()?.value.as_ref()?;
    Some(tensor.elem_type)
}

/// Whether a declaration has a shape.
pub(crate) fn has_shape(info: &pb::ValueInfoProto) -> bool {
    TensorType::of(info).is_some()
}
