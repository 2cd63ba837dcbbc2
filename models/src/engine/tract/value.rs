//! Tensors between the protocol and tract: one copy in, none out.

use bytes::{Bytes, BytesMut};
use half::f16;
use oip::{Datatype, Shape, Tensor, binary};
use tract_onnx::prelude::{DatumType, IntoTValue, TValue, TractResult};
use tract_onnx::prelude::{IntoTensor, Tensor as TractTensor};
use tract_onnx::tract_hir::internal::bail;
use zerocopy::{FromBytes, Immutable, TryFromBytes};

use crate::TensorSpec;

/// tract's word for a datatype.
pub(super) fn datum_type(datatype: Datatype) -> TractResult<DatumType> {
    Ok(match datatype {
        Datatype::Bool => DatumType::Bool,
        Datatype::Uint8 => DatumType::U8,
        Datatype::Uint16 => DatumType::U16,
        Datatype::Uint32 => DatumType::U32,
        Datatype::Uint64 => DatumType::U64,
        Datatype::Int8 => DatumType::I8,
        Datatype::Int16 => DatumType::I16,
        Datatype::Int32 => DatumType::I32,
        Datatype::Int64 => DatumType::I64,
        Datatype::Fp16 => DatumType::F16,
        Datatype::Fp32 => DatumType::F32,
        Datatype::Fp64 => DatumType::F64,
        Datatype::Bytes => DatumType::String,
        Datatype::Bf16 => bail!("BF16 is not a type of tract"),
    })
}

/// A request's tensor as tract takes it; the error is the client's.
pub(super) fn to_tract(tensor: &Tensor) -> Result<TValue, String> {
    let shape = extents(&tensor.shape)?;
    let made = match tensor.datatype {
        Datatype::Bool => {
            let elements = <[bool]>::try_ref_from_bytes(&tensor.data)
                .map_err(|_| format!("input `{}`: a BOOL element is neither 0 nor 1", tensor.name))?;
            TractTensor::from_shape(&shape, elements)
        }
        Datatype::Uint8 => copied::<u8>(&shape, &tensor.data),
        Datatype::Uint16 => copied::<u16>(&shape, &tensor.data),
        Datatype::Uint32 => copied::<u32>(&shape, &tensor.data),
        Datatype::Uint64 => copied::<u64>(&shape, &tensor.data),
        Datatype::Int8 => copied::<i8>(&shape, &tensor.data),
        Datatype::Int16 => copied::<i16>(&shape, &tensor.data),
        Datatype::Int32 => copied::<i32>(&shape, &tensor.data),
        Datatype::Int64 => copied::<i64>(&shape, &tensor.data),
        Datatype::Fp16 => copied::<f16>(&shape, &tensor.data),
        Datatype::Fp32 => copied::<f32>(&shape, &tensor.data),
        Datatype::Fp64 => copied::<f64>(&shape, &tensor.data),
        Datatype::Bf16 => return Err(format!("input `{}`: engine `tract` has no BF16", tensor.name)),
        Datatype::Bytes => return text(tensor, &shape),
    };
    made.map(TractTensor::into_tvalue).map_err(|error| format!("input `{}`: {error:#}", tensor.name))
}

/// One copy, whether or not a network buffer happens to be aligned for `T`.
fn copied<T>(shape: &[usize], data: &[u8]) -> TractResult<TractTensor>
where
    T: tract_onnx::prelude::Datum + Copy + FromBytes + Immutable,
{
    if let Ok(elements) = <[T]>::ref_from_bytes(data) {
        return TractTensor::from_shape(shape, elements);
    }
    let mut tensor = TractTensor::zero_dt(T::datum_type(), shape)?;
    let target = tensor.as_bytes_mut();
    if target.len() != data.len() {
        bail!("{} bytes for a shape of {} bytes", data.len(), target.len());
    }
    target.copy_from_slice(data);
    Ok(tensor)
}

fn text(tensor: &Tensor, shape: &[usize]) -> Result<TValue, String> {
    let refuse = |reason: &dyn std::fmt::Display| format!("input `{}`: {reason}", tensor.name);
    let mut elements = Vec::new();
    for element in binary::elements(&tensor.data) {
        let element = str::from_utf8(element.map_err(|error| refuse(&error))?);
        let element = element.map_err(|_| refuse(&"engine `tract` takes only UTF-8 in BYTES elements"))?;
        elements.push(element.to_owned());
    }
    let array =
        tract_onnx::tract_hir::internal::tract_ndarray::ArrayD::from_shape_vec(shape.to_vec(), elements)
            .map_err(|error| refuse(&error))?;
    Ok(TractTensor::from(array).into_tvalue())
}

/// An output of tract as the signature says it is.
pub(super) fn from_tract(value: TValue, spec: &TensorSpec) -> Result<Tensor, String> {
    let describe = |error: tract_onnx::prelude::TractError| format!("output `{}`: {error:#}", spec.name);
    let wanted = datum_type(spec.datatype).map_err(describe)?;
    let mut tensor = value.into_tensor();
    if tensor.datum_type() != wanted {
        tensor = tensor.cast_to_dt(wanted).map_err(describe)?.into_owned();
    }
    let shape: Vec<u64> = tensor.shape().iter().map(|&extent| extent as u64).collect();
    let data = if wanted == DatumType::String {
        let view = tensor.to_plain_array_view::<String>().map_err(describe)?;
        let mut encoded = BytesMut::new();
        for element in view {
            binary::push_element(&mut encoded, element.as_bytes()).map_err(|error| error.to_string())?;
        }
        encoded.freeze()
    } else {
        let tensor =
            if tensor.is_plain_ram() { tensor } else { tensor.into_plain_ram().map_err(describe)? };
        Bytes::from_owner(Owned(tensor))
    };
    Ok(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape: Shape::from_extents(&shape), data })
}

struct Owned(TractTensor);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn extents(shape: &Shape) -> Result<Vec<usize>, String> {
    let checked = shape.extents().iter().map(|&extent| usize::try_from(extent));
    checked.collect::<Result<_, _>>().map_err(|_| format!("shape {shape} is larger than memory"))
}
