//! Typed `contents` of a tensor to little-endian bytes.

use bytes::Bytes;

use crate::error::Field;
use crate::proto::InferTensorContents;
use crate::{Datatype, ProtocolError, Shape, binary};

/// Which tensor of a message it is.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Input(usize),
    Output(usize),
}

impl Place {
    fn field(self) -> Field<'static> {
        match self {
            Self::Input(index) => Field::Member("inputs", index, "contents"),
            Self::Output(index) => Field::Member("outputs", index, "contents"),
        }
    }

    fn raw(self) -> &'static str {
        match self {
            Self::Input(_) => "raw_input_contents",
            Self::Output(_) => "raw_output_contents",
        }
    }
}

/// Elements of a tensor, whose datatype says in which of the typed lists they must be.
pub(super) fn decode(
    contents: InferTensorContents,
    datatype: Datatype,
    shape: &Shape,
    place: Place,
) -> Result<Bytes, ProtocolError> {
    let used = list_of(datatype, place)?;
    let lengths = lengths(&contents);
    if let Some((other, _)) = lengths.iter().find(|(name, length)| *name != used && *length > 0) {
        return Err(ProtocolError::Value {
            field: place.field().to_string(),
            found: format!("elements in `{other}`"),
            expected: format!("all in `{used}` for {datatype}"),
        });
    }
    let field = place.field();
    let count = lengths.iter().map(|(_, length)| *length as u64).sum();
    let expected = binary::element_count(shape);
    if count != expected {
        return Err(ProtocolError::ElementCount {
            field: format!("{field}.{used}"),
            count,
            expected,
            shape: shape.clone(),
        });
    }
    let narrow = Narrow { field, used, datatype };
    match datatype {
        Datatype::Bool => Ok(contents.bool_contents.into_iter().map(u8::from).collect()),
        Datatype::Int8 => narrow.all(contents.int_contents, i8::to_le_bytes),
        Datatype::Int16 => narrow.all(contents.int_contents, i16::to_le_bytes),
        Datatype::Int32 => Ok(pack(&contents.int_contents, i32::to_le_bytes)),
        Datatype::Int64 => Ok(pack(&contents.int64_contents, i64::to_le_bytes)),
        Datatype::Uint8 => narrow.all(contents.uint_contents, u8::to_le_bytes),
        Datatype::Uint16 => narrow.all(contents.uint_contents, u16::to_le_bytes),
        Datatype::Uint32 => Ok(pack(&contents.uint_contents, u32::to_le_bytes)),
        Datatype::Uint64 => Ok(pack(&contents.uint64_contents, u64::to_le_bytes)),
        Datatype::Fp32 => Ok(pack(&contents.fp32_contents, f32::to_le_bytes)),
        Datatype::Fp64 => Ok(pack(&contents.fp64_contents, f64::to_le_bytes)),
        Datatype::Bytes => strings(&contents.bytes_contents),
        Datatype::Fp16 | Datatype::Bf16 => Ok(Bytes::new()),
    }
}

fn list_of(datatype: Datatype, place: Place) -> Result<&'static str, ProtocolError> {
    match datatype {
        Datatype::Bool => Ok("bool_contents"),
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => Ok("int_contents"),
        Datatype::Int64 => Ok("int64_contents"),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => Ok("uint_contents"),
        Datatype::Uint64 => Ok("uint64_contents"),
        Datatype::Fp32 => Ok("fp32_contents"),
        Datatype::Fp64 => Ok("fp64_contents"),
        Datatype::Bytes => Ok("bytes_contents"),
        Datatype::Fp16 | Datatype::Bf16 => Err(ProtocolError::Unsupported {
            field: place.field().to_string(),
            problem: format!("no typed list holds {datatype}: send `{}`", place.raw()),
        }),
    }
}

fn lengths(contents: &InferTensorContents) -> [(&'static str, usize); 8] {
    [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ]
}

fn pack<T: Copy, const N: usize>(values: &[T], encode: impl Fn(T) -> [u8; N]) -> Bytes {
    let mut data = Vec::with_capacity(values.len().saturating_mul(N));
    for &value in values {
        data.extend_from_slice(&encode(value));
    }
    data.into()
}

/// Lists of 32-bit integers that stand for narrower ones.
struct Narrow {
    field: Field<'static>,
    used: &'static str,
    datatype: Datatype,
}

impl Narrow {
    fn all<W, T, const N: usize>(
        &self,
        values: Vec<W>,
        encode: impl Fn(T) -> [u8; N],
    ) -> Result<Bytes, ProtocolError>
    where
        W: Copy + std::fmt::Display,
        T: TryFrom<W>,
    {
        let mut data = Vec::with_capacity(values.len().saturating_mul(N));
        for (index, &value) in values.iter().enumerate() {
            let narrowed = T::try_from(value).map_err(|_| ProtocolError::Element {
                field: format!("{}.{}", self.field, self.used),
                index: index as u64,
                found: value.to_string(),
                expected: format!("a value in the range of {}", self.datatype),
            })?;
            data.extend_from_slice(&encode(narrowed));
        }
        Ok(data.into())
    }
}

fn strings(values: &[Bytes]) -> Result<Bytes, ProtocolError> {
    let size =
        values.iter().fold(0_usize, |total, value| total.saturating_add(value.len()).saturating_add(4));
    let mut data = Vec::with_capacity(size);
    for value in values {
        binary::push_element(&mut data, value)?;
    }
    Ok(data.into())
}
