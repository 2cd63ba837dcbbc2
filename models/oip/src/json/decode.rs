//! A JSON body to an [`InferRequest`].

use bytes::Bytes;

use super::parameters::{InputParameters, OutputMembers, RequestParameters};
use super::tensors::{Members, Tensors, bounded, missing, rest_parameters};
use super::{depth, wire};
use crate::checks;
use crate::error::Field;
use crate::{
    InferRequest, InputTensor, Limits, OutputParameters, Parameters, ProtocolError, RequestedOutput, binary,
};

/// Decodes the body of `POST /v2/models/{model}/infer`.
///
/// `json_len` is the `Inference-Header-Content-Length` header: that many bytes of the body are JSON and the rest
/// is binary data, which the inputs share with the body. Without it the whole body is JSON.
///
/// # Errors
/// A [`ProtocolError`] that names the first member found wrong.
pub fn decode_infer(
    model_name: &str,
    model_version: Option<&str>,
    body: &Bytes,
    json_len: Option<usize>,
    limits: &Limits,
) -> Result<InferRequest, ProtocolError> {
    binary::check_body(body, limits)?;
    let length = json_len.unwrap_or(body.len());
    let (text, tail) =
        body.split_at_checked(length).ok_or(ProtocolError::HeaderLength { length, body: body.len() })?;
    depth::check(text, limits.json_depth)?;
    let request = wire::parse::<wire::Request<'_>>(text, "request body")?;

    let id = request.id.unwrap_or_default();
    checks::length(&id, Field::Top("id"), limits)?;
    let (parameters, binary_output) = request_parameters(request.parameters, limits)?;
    let inputs = request.inputs.ok_or_else(|| missing(Field::Top("inputs"), "an array of tensors"))?;
    let inputs = bounded(inputs, "inputs", limits)?;
    let outputs = request.outputs.map(|outputs| bounded(outputs, "outputs", limits)).transpose()?;

    Ok(InferRequest {
        model_name: model_name.to_owned(),
        model_version: model_version.map(str::to_owned),
        id,
        parameters,
        inputs: self::inputs(body.slice_ref(tail), inputs, limits)?,
        outputs: outputs
            .filter(|outputs| !outputs.is_empty())
            .map(|list| requested_outputs(list, limits))
            .transpose()?,
        binary_output,
    })
}

fn request_parameters(
    parameters: Option<RequestParameters>,
    limits: &Limits,
) -> Result<(Parameters, bool), ProtocolError> {
    let RequestParameters { binary_data_output, rest } = parameters.unwrap_or_default();
    if let Some(name) = &rest.composite {
        return Err(ProtocolError::Value {
            field: Field::Parameter(name).to_string(),
            found: "an array, an object or null".to_owned(),
            expected: "a boolean, a number or a string".to_owned(),
        });
    }
    let entries = rest_parameters(rest, Field::Top("parameters"), limits)?;
    Ok((entries, binary_data_output.unwrap_or(false)))
}

fn inputs(
    tail: Bytes,
    inputs: Vec<wire::Input<'_>>,
    limits: &Limits,
) -> Result<Vec<InputTensor>, ProtocolError> {
    let mut tensors = Tensors::new("inputs", tail, limits);
    let mut decoded: Vec<InputTensor> = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.into_iter().enumerate() {
        let InputParameters { binary_data_size, shared_memory, rest } = input.parameters.unwrap_or_default();
        let wire::Input { name, datatype, shape, data, .. } = input;
        let tensor =
            tensors.next(Members { name, datatype, shape, data, binary_data_size, shared_memory })?;
        checks::unique(&tensor.name, decoded.iter().map(|earlier| &earlier.name), "inputs", index)?;
        decoded.push(InputTensor {
            name: tensor.name,
            datatype: tensor.datatype,
            shape: tensor.shape,
            data: tensor.data,
            parameters: rest_parameters(rest, Field::input(index, "parameters"), limits)?,
        });
    }
    match tensors.unclaimed() {
        0 => Ok(decoded),
        bytes => Err(ProtocolError::Unclaimed { bytes }),
    }
}

fn requested_outputs(
    outputs: Vec<wire::Output>,
    limits: &Limits,
) -> Result<Vec<RequestedOutput>, ProtocolError> {
    let mut decoded: Vec<RequestedOutput> = Vec::with_capacity(outputs.len());
    for (index, output) in outputs.into_iter().enumerate() {
        let field = Field::Member("outputs", index, "name");
        let name = output.name.ok_or_else(|| missing(field, "a string"))?;
        checks::length(&name, field, limits)?;
        checks::unique(&name, decoded.iter().map(|earlier| &earlier.name), "outputs", index)?;
        let OutputMembers { binary_data, classification, shared_memory } =
            output.parameters.unwrap_or_default();
        decoded.push(RequestedOutput {
            name,
            parameters: OutputParameters {
                binary: binary_data,
                classification: classification.filter(|&classes| classes > 0),
                shared_memory: shared_memory.complete("outputs", index, limits)?,
            },
        });
    }
    Ok(decoded)
}
