//! An [`InferResponse`] to a JSON body, with binary data behind it where that was asked for.

use bytes::Bytes;
use half::{bf16, f16};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::{
    Datatype, InferResponse, OutputParameters, Parameter, Parameters, ProtocolError, Shape, Tensor, binary,
};

/// An encoded answer: `head`, then every part of `tail`, is the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The JSON text.
    pub head: Bytes,
    /// Binary outputs in order, shared with the response they were encoded from.
    pub tail: Vec<Bytes>,
    /// Value for the `Inference-Header-Content-Length` header; `None` if nothing is binary.
    pub json_len: Option<usize>,
}

impl Encoded {
    /// Bytes of the whole body.
    pub fn body_len(&self) -> usize {
        self.tail.iter().fold(self.head.len(), |total, part| total.saturating_add(part.len()))
    }
}

/// Encodes an answer. Outputs that do not say how they are to be returned are binary if `binary_default`.
///
/// # Errors
/// [`ProtocolError::Unsupported`] for values that JSON cannot carry (NaN, infinities, strings that are not
/// UTF-8), [`ProtocolError::BadOutput`] if data and shape of an output do not agree.
pub fn encode_infer(response: &InferResponse, binary_default: bool) -> Result<Encoded, ProtocolError> {
    let mut tail = Vec::new();
    let mut estimate = 128_usize;
    for (tensor, parameters) in &response.outputs {
        estimate = estimate.saturating_add(128);
        match placement(parameters, binary_default) {
            Placement::Shared => {}
            Placement::Binary => {
                check_output(tensor)?;
                tail.push(tensor.data.clone());
            }
            Placement::Json => {
                check_output(tensor)?;
                check_printable(tensor)?;
                estimate = estimate.saturating_add(tensor.data.len().saturating_mul(3));
            }
        }
    }
    let mut head = Vec::with_capacity(estimate);
    serde_json::to_writer(&mut head, &Response { response, binary_default }).map_err(|error| {
        ProtocolError::BadOutput { name: response.model_name.clone(), problem: error.to_string() }
    })?;
    let json_len = if tail.is_empty() { None } else { Some(head.len()) };
    Ok(Encoded { head: head.into(), tail, json_len })
}

enum Placement {
    Json,
    Binary,
    Shared,
}

fn placement(parameters: &OutputParameters, binary_default: bool) -> Placement {
    match (&parameters.shared_memory, parameters.binary.unwrap_or(binary_default)) {
        (Some(_), _) => Placement::Shared,
        (None, true) => Placement::Binary,
        (None, false) => Placement::Json,
    }
}

fn check_output(tensor: &Tensor) -> Result<(), ProtocolError> {
    let field = crate::error::Field::Top("data");
    binary::check(&tensor.data, tensor.datatype, &tensor.shape, field)
        .map_err(|error| ProtocolError::BadOutput { name: tensor.name.clone(), problem: error.to_string() })
}

/// JSON has no NaN, no infinities, and no strings but Unicode.
fn check_printable(tensor: &Tensor) -> Result<(), ProtocolError> {
    let odd = match tensor.datatype {
        Datatype::Fp16 => first_odd(&tensor.data, |bytes| f16::from_le_bytes(bytes).to_f64()),
        Datatype::Bf16 => first_odd(&tensor.data, |bytes| bf16::from_le_bytes(bytes).to_f64()),
        Datatype::Fp32 => first_odd(&tensor.data, |bytes| f32::from_le_bytes(bytes).into()),
        Datatype::Fp64 => first_odd(&tensor.data, f64::from_le_bytes),
        Datatype::Bytes => binary::elements(&tensor.data)
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
            field: format!("output `{}`", tensor.name),
            problem: format!("{odd}, which JSON cannot carry: ask for binary data (`\"binary_data\": true`)"),
        }),
    }
}

fn first_odd<const N: usize>(data: &[u8], decode: impl Fn([u8; N]) -> f64) -> Option<String> {
    let (elements, _) = data.as_chunks::<N>();
    let mut values = elements.iter().map(|&bytes| decode(bytes)).enumerate();
    values.find(|(_, value)| !value.is_finite()).map(|(index, value)| format!("element {index} is {value}"))
}

struct Response<'a> {
    response: &'a InferResponse,
    binary_default: bool,
}

impl Serialize for Response<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.response.id.is_empty() {
            map.serialize_entry("id", &self.response.id)?;
        }
        map.serialize_entry("model_name", &self.response.model_name)?;
        map.serialize_entry("model_version", &self.response.model_version)?;
        if !self.response.parameters.is_empty() {
            map.serialize_entry("parameters", &ParameterMap(&self.response.parameters))?;
        }
        map.serialize_entry("outputs", &Outputs(self))?;
        map.end()
    }
}

struct Outputs<'a>(&'a Response<'a>);

impl Serialize for Outputs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.response.outputs.iter().map(|(tensor, parameters)| Output {
            tensor,
            parameters,
            binary_default: self.0.binary_default,
        }))
    }
}

struct Output<'a> {
    tensor: &'a Tensor,
    parameters: &'a OutputParameters,
    binary_default: bool,
}

impl Serialize for Output<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.tensor.name)?;
        map.serialize_entry("datatype", self.tensor.datatype.as_str())?;
        map.serialize_entry("shape", &Extents(&self.tensor.shape))?;
        match placement(self.parameters, self.binary_default) {
            Placement::Json => map.serialize_entry("data", &Elements(self.tensor))?,
            Placement::Binary => map.serialize_entry("parameters", &BinarySize(self.tensor.data.len()))?,
            Placement::Shared => map.serialize_entry("parameters", &SharedMemory(self.parameters))?,
        }
        map.end()
    }
}

struct Extents<'a>(&'a Shape);

impl Serialize for Extents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.extents())
    }
}

struct BinarySize(usize);

impl Serialize for BinarySize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("binary_data_size", self.0)])
    }
}

struct SharedMemory<'a>(&'a OutputParameters);

impl Serialize for SharedMemory<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(target) = &self.0.shared_memory {
            map.serialize_entry("shared_memory_region", &target.region)?;
            map.serialize_entry("shared_memory_offset", &target.offset)?;
            map.serialize_entry("shared_memory_byte_size", &target.byte_size)?;
        }
        map.end()
    }
}

struct ParameterMap<'a>(&'a Parameters);

impl Serialize for ParameterMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            match value {
                Parameter::Bool(value) => map.serialize_entry(name, value)?,
                Parameter::Int(value) => map.serialize_entry(name, value)?,
                Parameter::Double(value) => map.serialize_entry(name, value)?,
                Parameter::String(value) => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

struct Elements<'a>(&'a Tensor);

impl Serialize for Elements<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = &self.0.data;
        match self.0.datatype {
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
