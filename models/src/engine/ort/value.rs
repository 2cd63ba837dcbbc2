//! Tensors between the protocol and ONNX Runtime: none copied where memory is aligned.

use std::fmt::Debug;

use ::ort::session::SessionInputValue;
use ::ort::value::{DynValue, PrimitiveTensorElementType, Tensor as OrtTensor, TensorRef, ValueType};
use bytes::Bytes;
use half::{bf16, f16};
use oip::{Datatype, Shape, Tensor};
use zerocopy::{FromBytes, Immutable, IntoBytes, TryFromBytes};

use super::strings;
use crate::TensorSpec;

/// An output up to this size is copied, which costs less than the bookkeeping of sharing it and gives the
/// runtime's memory back on the lane's own thread.
const COPY_BYTES_MAX: usize = 4096;

/// A request's tensor as the runtime takes it; the error is the client's.
pub(super) fn to_ort(tensor: &Tensor) -> Result<SessionInputValue<'_>, String> {
    match tensor.datatype {
        Datatype::Bool => {
            let elements = <[bool]>::try_ref_from_bytes(&tensor.data)
                .map_err(|_| "a BOOL element is neither 0 nor 1".to_owned())?;
            borrowed(&tensor.shape, elements)
        }
        Datatype::Uint8 => plain::<u8>(tensor),
        Datatype::Uint16 => plain::<u16>(tensor),
        Datatype::Uint32 => plain::<u32>(tensor),
        Datatype::Uint64 => plain::<u64>(tensor),
        Datatype::Int8 => plain::<i8>(tensor),
        Datatype::Int16 => plain::<i16>(tensor),
        Datatype::Int32 => plain::<i32>(tensor),
        Datatype::Int64 => plain::<i64>(tensor),
        Datatype::Fp16 => plain::<f16>(tensor),
        Datatype::Bf16 => plain::<bf16>(tensor),
        Datatype::Fp32 => plain::<f32>(tensor),
        Datatype::Fp64 => plain::<f64>(tensor),
        Datatype::Bytes => Ok(strings::to_ort(tensor)?.into()),
    }
}

/// Borrows the elements where they lie; copies them once when the buffer is not aligned for `T`.
fn plain<T>(tensor: &Tensor) -> Result<SessionInputValue<'_>, String>
where
    T: PrimitiveTensorElementType + FromBytes + IntoBytes + Immutable + Copy + Debug + 'static,
{
    if let Ok(elements) = <[T]>::ref_from_bytes(&tensor.data) {
        return borrowed(&tensor.shape, elements);
    }
    let mut elements = vec![T::new_zeroed(); tensor.data.len() / size_of::<T>()];
    let target = elements.as_mut_slice().as_mut_bytes();
    if target.len() != tensor.data.len() {
        return Err(format!("{} bytes are not a whole number of elements", tensor.data.len()));
    }
    target.copy_from_slice(&tensor.data);
    let value =
        OrtTensor::from_array((tensor.shape.to_wire(), elements)).map_err(|error| error.to_string())?;
    Ok(value.into())
}

fn borrowed<'a, T>(shape: &Shape, elements: &'a [T]) -> Result<SessionInputValue<'a>, String>
where
    T: PrimitiveTensorElementType + Clone + Debug + 'static,
{
    let value = TensorRef::from_array_view((shape.to_wire(), elements)).map_err(|error| error.to_string())?;
    Ok(value.into())
}

/// An output of the runtime as the signature says it is.
pub(super) fn from_ort(value: DynValue, spec: &TensorSpec) -> Result<Tensor, String> {
    let refuse = |reason: String| format!("output `{}`: {reason}", spec.name);
    let ValueType::Tensor { shape, .. } = value.dtype() else {
        return Err(refuse("is not a tensor".to_owned()));
    };
    let shape = Shape::from_wire(shape).map_err(|error| refuse(error.to_string()))?;
    let data = if spec.datatype == Datatype::Bytes {
        let count = shape.element_count().and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or_else(|| refuse(format!("shape {shape} is larger than memory")))?;
        strings::from_ort(&value, count).map_err(refuse)?
    } else {
        let elements = element_bytes(&value, spec.datatype).map_err(refuse)?;
        if elements.len() <= COPY_BYTES_MAX {
            Bytes::copy_from_slice(elements)
        } else {
            Bytes::from_owner(Owned { value, datatype: spec.datatype })
        }
    };
    Ok(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data })
}

/// An output that stays where the runtime put it until its last reader drops it.
struct Owned {
    value: DynValue,
    datatype: Datatype,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        element_bytes(&self.value, self.datatype).unwrap_or_default()
    }
}

fn element_bytes(value: &DynValue, datatype: Datatype) -> Result<&[u8], String> {
    match datatype {
        Datatype::Bool => bytes_as::<bool>(value),
        Datatype::Uint8 => bytes_as::<u8>(value),
        Datatype::Uint16 => bytes_as::<u16>(value),
        Datatype::Uint32 => bytes_as::<u32>(value),
        Datatype::Uint64 => bytes_as::<u64>(value),
        Datatype::Int8 => bytes_as::<i8>(value),
        Datatype::Int16 => bytes_as::<i16>(value),
        Datatype::Int32 => bytes_as::<i32>(value),
        Datatype::Int64 => bytes_as::<i64>(value),
        Datatype::Fp16 => bytes_as::<f16>(value),
        Datatype::Bf16 => bytes_as::<bf16>(value),
        Datatype::Fp32 => bytes_as::<f32>(value),
        Datatype::Fp64 => bytes_as::<f64>(value),
        Datatype::Bytes => Err("has elements of varying length".to_owned()),
    }
}

fn bytes_as<T: PrimitiveTensorElementType + IntoBytes + Immutable + 'static>(
    value: &DynValue,
) -> Result<&[u8], String> {
    let (shape, elements) = value.try_extract_tensor::<T>().map_err(|error| error.to_string())?;
    // The runtime may leave the pointer of an empty tensor dangling.
    if shape.num_elements() == 0 { Ok(&[]) } else { Ok(elements.as_bytes()) }
}
