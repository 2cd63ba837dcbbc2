//! The client's side: [`InferRequest`] to a JSON body, followed by binary data where the caller wants it.

use serde::Serialize;

use super::Encoded;
use super::print::{self, Elements};
use crate::error::Field;
use crate::{
    Datatype, InferRequest, Parameters, ProtocolError, RequestedOutput, SharedMemoryRef, TensorData, binary,
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
    let mut inputs = Vec::with_capacity(request.inputs.len());
    for (index, input) in request.inputs.iter().enumerate() {
        estimate = estimate.saturating_add(128);
        let mut parameters =
            InputParameters { binary_data_size: None, region: None, rest: &input.parameters };
        let mut elements = None;
        match &input.data {
            TensorData::Shared(region) => parameters.region = Some(region),
            TensorData::Inline(data) => {
                let field = Field::input(index, "data");
                binary::check(data, input.datatype, &input.shape, field)?;
                if binary {
                    tail.push(data.clone());
                    parameters.binary_data_size = Some(data.len());
                } else {
                    print::check(input.datatype, data, field, "send binary data")?;
                    estimate = estimate.saturating_add(data.len().saturating_mul(3));
                    elements = Some(Elements { datatype: input.datatype, data });
                }
            }
        }
        inputs.push(Input {
            name: &input.name,
            datatype: input.datatype,
            shape: input.shape.extents(),
            parameters: Some(parameters).filter(|_| elements.is_none() || !input.parameters.is_empty()),
            data: elements,
        });
    }
    let binary_data_output = (binary || request.binary_output).then_some(true);
    let parameters = RequestParameters { binary_data_output, rest: &request.parameters };
    let request = Request {
        id: &request.id,
        parameters: Some(parameters)
            .filter(|_| binary_data_output.is_some() || !request.parameters.is_empty()),
        inputs,
        outputs: request.outputs.as_deref(),
    };
    let mut head = Vec::with_capacity(estimate);
    serde_json::to_writer(&mut head, &request).map_err(|error| ProtocolError::Json {
        field: "request body".to_owned(),
        problem: error.to_string(),
    })?;
    let json_len = if tail.is_empty() { None } else { Some(head.len()) };
    Ok(Encoded { head: head.into(), tail, json_len })
}

#[derive(Serialize)]
struct Request<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<RequestParameters<'a>>,
    inputs: Vec<Input<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<&'a [RequestedOutput]>,
}

#[derive(Serialize)]
struct RequestParameters<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_data_output: Option<bool>,
    #[serde(flatten, serialize_with = "print::parameters")]
    rest: &'a Parameters,
}

#[derive(Serialize)]
struct Input<'a> {
    name: &'a str,
    datatype: Datatype,
    shape: &'a [u64],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<InputParameters<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Elements<'a>>,
}

#[derive(Serialize)]
struct InputParameters<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_data_size: Option<usize>,
    #[serde(flatten)]
    region: Option<&'a SharedMemoryRef>,
    #[serde(flatten, serialize_with = "print::parameters")]
    rest: &'a Parameters,
}
