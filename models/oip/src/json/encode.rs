//! [`InferResponse`] to a JSON body, followed by binary data if the client requested it.

use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::print::{self, Elements, Extents, ParameterMap};
use crate::{InferResponse, OutputParameters, ProtocolError, Tensor, binary};

/// An encoded message: `head`, then every part of `tail`, is the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The JSON text.
    pub head: Bytes,
    /// Binary tensors in order, shared with what they were encoded from.
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

/// Encodes a response. Outputs without a choice of encoding are binary if `binary_default`.
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
                let field = format_args!("output `{}`", tensor.name);
                let advice = "ask for binary data (`\"binary_data\": true`)";
                print::check(tensor.datatype, &tensor.data, field, advice)?;
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
            Placement::Json => map.serialize_entry(
                "data",
                &Elements { datatype: self.tensor.datatype, data: &self.tensor.data },
            )?,
            Placement::Binary => map.serialize_entry("parameters", &BinarySize(self.tensor.data.len()))?,
            Placement::Shared => map.serialize_entry("parameters", &SharedMemory(self.parameters))?,
        }
        map.end()
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
            print::region(&mut map, target)?;
        }
        map.end()
    }
}
