//! Parameters and little-endian elements as JSON text.

use std::fmt;

use half::{bf16, f16};
use serde::ser::{Serialize, SerializeSeq, Serializer};

use crate::{Datatype, Parameters, ProtocolError, binary};

/// JSON has no NaN, no infinities, and no strings but Unicode.
pub(super) fn check(
    datatype: Datatype,
    data: &[u8],
    field: impl fmt::Display,
    advice: &str,
) -> Result<(), ProtocolError> {
    let odd = match datatype {
        Datatype::Fp16 => first_odd(data, |bytes| f16::from_le_bytes(bytes).to_f64()),
        Datatype::Bf16 => first_odd(data, |bytes| bf16::from_le_bytes(bytes).to_f64()),
        Datatype::Fp32 => first_odd(data, |bytes| f32::from_le_bytes(bytes).into()),
        Datatype::Fp64 => first_odd(data, f64::from_le_bytes),
        Datatype::Bytes => binary::elements(data)
            .position(|element| element.is_ok_and(|element| std::str::from_utf8(element).is_err()))
            .map(|index| format!("element {index} is not UTF-8")),
        Datatype::Bool
        | Datatype::Uint8
        | Datatype::Uint16
        | Datatype::Uint32
        | Datatype::Uint64
        | Datatype::Int8
        | Datatype::Int16
        | Datatype::Int32
        | Datatype::Int64 => None,
    };
    match odd {
        None => Ok(()),
        Some(odd) => Err(ProtocolError::Unsupported {
            field: field.to_string(),
            problem: format!("{odd}, which JSON cannot carry: {advice}"),
        }),
    }
}

fn first_odd<const N: usize>(data: &[u8], decode: impl Fn([u8; N]) -> f64) -> Option<String> {
    let (elements, _) = data.as_chunks::<N>();
    let mut values = elements.iter().map(|&bytes| decode(bytes)).enumerate();
    values.find(|(_, value)| !value.is_finite()).map(|(index, value)| format!("element {index} is {value}"))
}

/// Parameters as the members of an object.
pub(super) fn parameters<S: Serializer>(parameters: &Parameters, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(parameters.iter().map(|(name, value)| (name, value)))
}

/// The elements of a tensor as a flat array.
pub(super) struct Elements<'a> {
    pub(super) datatype: Datatype,
    pub(super) data: &'a [u8],
}

impl Serialize for Elements<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = self.data;
        match self.datatype {
            Datatype::Bool => numbers(serializer, data, |[byte]: [u8; 1]| byte != 0),
            Datatype::Uint8 => numbers(serializer, data, u8::from_le_bytes),
            Datatype::Uint16 => numbers(serializer, data, u16::from_le_bytes),
            Datatype::Uint32 => numbers(serializer, data, u32::from_le_bytes),
            Datatype::Uint64 => numbers(serializer, data, u64::from_le_bytes),
            Datatype::Int8 => numbers(serializer, data, i8::from_le_bytes),
            Datatype::Int16 => numbers(serializer, data, i16::from_le_bytes),
            Datatype::Int32 => numbers(serializer, data, i32::from_le_bytes),
            Datatype::Int64 => numbers(serializer, data, i64::from_le_bytes),
            Datatype::Fp16 => numbers(serializer, data, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Datatype::Bf16 => numbers(serializer, data, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            Datatype::Fp32 => numbers(serializer, data, f32::from_le_bytes),
            Datatype::Fp64 => numbers(serializer, data, f64::from_le_bytes),
            Datatype::Bytes => strings(serializer, data),
        }
    }
}

fn numbers<S: Serializer, T: Serialize, const N: usize>(
    serializer: S,
    data: &[u8],
    decode: impl Fn([u8; N]) -> T,
) -> Result<S::Ok, S::Error> {
    let (elements, _) = data.as_chunks::<N>();
    serializer.collect_seq(elements.iter().map(|&bytes| decode(bytes)))
}

fn strings<S: Serializer>(serializer: S, data: &[u8]) -> Result<S::Ok, S::Error> {
    let mut seq = serializer.serialize_seq(None)?;
    for element in binary::elements(data) {
        let element = element.map_err(serde::ser::Error::custom)?;
        let text = std::str::from_utf8(element).map_err(serde::ser::Error::custom)?;
        seq.serialize_element(text)?;
    }
    seq.end()
}
