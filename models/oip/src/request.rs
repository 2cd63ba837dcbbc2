//! Inference requests and responses, independent of the wire they came over.

use bytes::Bytes;
use serde::Serialize;

use crate::{Datatype, Shape, Tensor};

/// A value of a `parameters` object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Parameter {
    /// JSON boolean.
    Bool(bool),
    /// JSON integer.
    Int(i64),
    /// JSON number with a fraction or exponent; always finite.
    Double(f64),
    /// JSON string.
    String(String),
}

/// `parameters`, in the order they arrived.
pub type Parameters = Vec<(String, Parameter)>;

/// A range of a registered shared-memory region: an input's elements, or the destination of an output's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedMemoryRef {
    /// Name given when the region was registered.
    #[serde(rename = "shared_memory_region")]
    pub region: String,
    /// First byte inside the region.
    #[serde(rename = "shared_memory_offset")]
    pub offset: u64,
    /// Length in bytes.
    #[serde(rename = "shared_memory_byte_size")]
    pub byte_size: u64,
}

/// The elements of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorData {
    /// In the request, little-endian, row-major (see [`Tensor::data`]). A slice of the body where the
    /// client sent binary data; nothing is copied.
    Inline(Bytes),
    /// In a shared-memory region.
    Shared(SharedMemoryRef),
}

/// One input of a request. The codecs have checked that inline data has the length that datatype and
/// shape call for, that `BYTES` elements are well formed and that `BOOL` elements are 0 or 1.
#[derive(Clone, Debug, PartialEq)]
pub struct InputTensor {
    /// Name in the model's signature.
    pub name: String,
    /// Element type as the client declared it.
    pub datatype: Datatype,
    /// Extents, batch dimension included.
    pub shape: Shape,
    /// The elements, or where they are.
    pub data: TensorData,
    /// Parameters of this tensor other than those the protocol defines.
    pub parameters: Parameters,
}

/// Parameters of a requested output that the protocol and its extensions define.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutputParameters {
    /// Binary tensor extension: `Some(true)` binary, `Some(false)` JSON, `None` as the request says.
    #[serde(rename = "binary_data", skip_serializing_if = "Option::is_none")]
    pub binary: Option<bool>,
    /// Classification extension: return the top `k` as `BYTES`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classification: Option<u32>,
    /// Shared-memory extension: write there instead of answering inline.
    #[serde(flatten)]
    pub shared_memory: Option<SharedMemoryRef>,
}

impl OutputParameters {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One output that the client requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestedOutput {
    /// Name in the model's signature.
    pub name: String,
    /// How to return it.
    #[serde(skip_serializing_if = "OutputParameters::is_default")]
    pub parameters: OutputParameters,
}

/// A decoded inference request.
#[derive(Clone, Debug, PartialEq)]
pub struct InferRequest {
    /// Model name: from the URL over HTTP, from the message over gRPC. Not validated yet.
    pub model_name: String,
    /// Model version, if the client named one. Not validated yet.
    pub model_version: Option<String>,
    /// The client's id, echoed in the response; empty if none.
    pub id: String,
    /// Request parameters other than `binary_data_output`.
    pub parameters: Parameters,
    /// Inputs in the order they arrived; names are unique.
    pub inputs: Vec<InputTensor>,
    /// Requested outputs; `None` means all. Names are unique.
    pub outputs: Option<Vec<RequestedOutput>>,
    /// Binary tensor extension: default for outputs that do not say (`binary_data_output`).
    pub binary_output: bool,
}

/// An answer, before encoding.
#[derive(Clone, Debug, PartialEq)]
pub struct InferResponse {
    /// Model that answered.
    pub model_name: String,
    /// Version that answered.
    pub model_version: String,
    /// The request's id; empty if it had none.
    pub id: String,
    /// Response parameters.
    pub parameters: Parameters,
    /// Outputs, each with the way it is to be returned.
    pub outputs: Vec<(Tensor, OutputParameters)>,
}
