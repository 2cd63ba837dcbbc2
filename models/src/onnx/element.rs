//! ONNX element types as the protocol names them.

use oip::Datatype;
use tract_onnx::pb::tensor_proto::DataType;

/// The protocol's datatype for an ONNX element type number, or what stands in the way.
pub(crate) fn datatype(elem_type: i32) -> Result<Datatype, String> {
    let element =
        DataType::try_from(elem_type).map_err(|_| format!("element type number {elem_type} is unknown"))?;
    Ok(match element {
        DataType::Bool => Datatype::Bool,
        DataType::Uint8 => Datatype::Uint8,
        DataType::Uint16 => Datatype::Uint16,
        DataType::Uint32 => Datatype::Uint32,
        DataType::Uint64 => Datatype::Uint64,
        DataType::Int8 => Datatype::Int8,
        DataType::Int16 => Datatype::Int16,
        DataType::Int32 => Datatype::Int32,
        DataType::Int64 => Datatype::Int64,
        DataType::Float16 => Datatype::Fp16,
        DataType::Float => Datatype::Fp32,
        DataType::Double => Datatype::Fp64,
        DataType::Bfloat16 => Datatype::Bf16,
        DataType::String => Datatype::Bytes,
        other => return Err(format!("element type {} has no protocol datatype", other.as_str_name())),
    })
}
