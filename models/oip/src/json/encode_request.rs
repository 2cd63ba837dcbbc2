//! The client's side: [`InferRequest`] to a JSON body, followed by binary data where the caller wants it.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Encoded;
use super::print::{self, Elements, Extents};
use crate::error::Field;
use crate::{
    InferRequest, InputTensor, OutputParameters, ProtocolError, RequestedOutput, TensorData, binary,
};

/// Encodes the body of `POST /v2/models/{model}/infer`. Model name and version belong into the URL.
///
/// With `binary` the inputs follow the JSON text as they lie in memory, and outputs that do not say how they are
/// to be returned are asked for the same way; without it inputs are JSON arrays. `parameters` must not hold the
/// names that the protocol's extensions define.
///
/// # Errors
/// [`ProtocolError::Unsupported`] for values that JSON cannot carry (NaN, infinities, strings that are not
/// UTF-8), and whatever is wrong if the data of an input is not what its datatype and shape call for.
pub fn encode_request(request: &InferRequest, binary: bool) -> Result<Encoded, ProtocolError> {
    let mut tail = Vec::new();
    let mut estimate = 128_usize;
    for (index, input) in request.inputs.iter().enumerate() {
        estimate = estimate.saturating_add(128);
        let TensorData::Inline(data) = &input.data else { continue };
        let field = Field::input(index, "data");
        binary::check(data, input.datatype, &input.shape, field)?;
        if binary {
            tail.push(data.clone());
        } else {
            print::check(input.datatype, data, field, "send binary data")?;
            estimate = estimate.saturating_add(data.len().saturating_mul(3));
        }
    }
    let mut head = Vec::with_capacity(estimate);
    serde_json::to_writer(&mut head, &Request { request, binary }).map_err(|error| ProtocolError::Json {
        field: "request body".to_owned(),
        problem: error.to_string(),
    })?;
    let json_len = if tail.is_empty() { None } else { Some(head.len()) };
    Ok(Encoded { head: head.into(), tail, json_len })
}

struct Request<'a> {
    request: &'a InferRequest,
    binary: bool,
}

impl Serialize for Request<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, binary } = *self;
        let mut map = serializer.serialize_map(None)?;
        if !request.id.is_empty() {
            map.serialize_entry("id", &request.id)?;
        }
        if binary || request.binary_output || !request.parameters.is_empty() {
            map.serialize_entry("parameters", &Parameters(self))?;
        }
        map.serialize_entry("inputs", &Inputs(self))?;
        if let Some(outputs) = &request.outputs {
            map.serialize_entry("outputs", &Outputs(outputs))?;
        }
        map.end()
    }
}

struct Parameters<'a>(&'a Request<'a>);

impl Serialize for Parameters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Request { request, binary } = *self.0;
        let mut map = serializer.serialize_map(None)?;
        if binary || request.binary_output {
            map.serialize_entry("binary_data_output", &true)?;
        }
        print::entries(&mut map, &request.parameters)?;
        map.end()
    }
}

struct Inputs<'a>(&'a Request<'a>);

impl Serialize for Inputs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let binary = self.0.binary;
        serializer.collect_seq(self.0.request.inputs.iter().map(|tensor| Input { tensor, binary }))
    }
}

struct Input<'a> {
    tensor: &'a InputTensor,
    binary: bool,
}

impl Serialize for Input<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { tensor, binary } = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &tensor.name)?;
        map.serialize_entry("datatype", tensor.datatype.as_str())?;
        map.serialize_entry("shape", &Extents(&tensor.shape))?;
        let in_json = !binary && matches!(tensor.data, TensorData::Inline(_));
        if !in_json || !tensor.parameters.is_empty() {
            map.serialize_entry("parameters", &InputParameters(self))?;
        }
        if let (TensorData::Inline(data), false) = (&tensor.data, binary) {
            map.serialize_entry("data", &Elements { datatype: tensor.datatype, data })?;
        }
        map.end()
    }
}

struct InputParameters<'a>(&'a Input<'a>);

impl Serialize for InputParameters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Input { tensor, binary } = *self.0;
        let mut map = serializer.serialize_map(None)?;
        match &tensor.data {
            TensorData::Inline(data) if binary => map.serialize_entry("binary_data_size", &data.len())?,
            TensorData::Inline(_) => {}
            TensorData::Shared(region) => print::region(&mut map, region)?,
        }
        print::entries(&mut map, &tensor.parameters)?;
        map.end()
    }
}

struct Outputs<'a>(&'a [RequestedOutput]);

impl Serialize for Outputs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Output))
    }
}

struct Output<'a>(&'a RequestedOutput);

impl Serialize for Output<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RequestedOutput { name, parameters } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        if *parameters != OutputParameters::default() {
            map.serialize_entry("parameters", &OutputMembers(parameters))?;
        }
        map.end()
    }
}

struct OutputMembers<'a>(&'a OutputParameters);

impl Serialize for OutputMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let OutputParameters { binary, classification, shared_memory } = self.0;
        let mut map = serializer.serialize_map(None)?;
        if let Some(binary) = binary {
            map.serialize_entry("binary_data", binary)?;
        }
        if let Some(classes) = classification {
            map.serialize_entry("classification", classes)?;
        }
        if let Some(target) = shared_memory {
            print::region(&mut map, target)?;
        }
        map.end()
    }
}
