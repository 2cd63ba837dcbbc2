//! The client's side: a JSON response to an [`InferResponse`].
//!
//! Servers add members of their own, so only the tensors are checked.

use bytes::Bytes;

use super::tensors::{Members, Tensors, bounded, missing};
use super::{depth, wire};
use crate::checks;
use crate::error::Field;
use crate::{InferResponse, Limits, OutputParameters, ProtocolError, Tensor, TensorData};

const WHOLE: &str = "response body";

/// Decodes the body of a successful answer to `POST /v2/models/{model}/infer`.
///
/// `json_len` is the answer's `Inference-Header-Content-Length` header; binary outputs are slices of the body.
/// Each output says in `binary` which way it came. A name or version that the server left out is empty, and
/// `parameters` that are no booleans, numbers or strings are left out. An output in shared memory has no data.
///
/// # Errors
/// A [`ProtocolError`] that names the first member found wrong.
pub fn decode_response(
    body: &Bytes,
    json_len: Option<usize>,
    limits: &Limits,
) -> Result<InferResponse, ProtocolError> {
    if body.len() > limits.body_bytes {
        return Err(unsound(
            format!("{} bytes", body.len()),
            format!("at most {} (`body_bytes`)", limits.body_bytes),
        ));
    }
    let length = json_len.unwrap_or(body.len());
    let (text, tail) =
        body.split_at_checked(length).ok_or(ProtocolError::HeaderLength { length, body: body.len() })?;
    depth::check(text, limits.json_depth).map_err(|_| {
        unsound("deeply nested".to_owned(), format!("at most {} levels (`json_depth`)", limits.json_depth))
    })?;
    let response = wire::parse::<wire::Response<'_>>(text, WHOLE)?;

    let outputs = response.outputs.ok_or_else(|| missing(Field::Top("outputs"), "an array of tensors"))?;
    let outputs = bounded(outputs, "outputs", limits)?;
    let mut parameters = response.parameters.unwrap_or_default().0;
    parameters.truncate(limits.parameters);
    Ok(InferResponse {
        model_name: response.model_name.unwrap_or_default(),
        model_version: response.model_version.unwrap_or_default(),
        id: response.id.unwrap_or_default(),
        parameters,
        outputs: tensors(body.slice_ref(tail), outputs, limits)?,
    })
}

fn unsound(found: String, expected: String) -> ProtocolError {
    ProtocolError::Value { field: WHOLE.to_owned(), found, expected }
}

fn tensors(
    tail: Bytes,
    outputs: Vec<wire::AnsweredOutput<'_>>,
    limits: &Limits,
) -> Result<Vec<(Tensor, OutputParameters)>, ProtocolError> {
    let mut tensors = Tensors::new("outputs", tail, limits);
    let mut decoded: Vec<(Tensor, OutputParameters)> = Vec::with_capacity(outputs.len());
    for (index, output) in outputs.into_iter().enumerate() {
        let wire::AnsweredOutput { name, datatype, shape, parameters, data } = output;
        let notes = parameters.unwrap_or_default();
        let binary = notes.binary_data_size.is_some();
        let found = tensors.next(Members {
            name,
            datatype,
            shape,
            data,
            binary_data_size: notes.binary_data_size,
            shared_memory: notes.shared_memory,
        })?;
        checks::unique(&found.name, decoded.iter().map(|(earlier, _)| &earlier.name), "outputs", index)?;
        let mut parameters = OutputParameters { binary: Some(binary), ..OutputParameters::default() };
        let data = match found.data {
            TensorData::Inline(data) => data,
            TensorData::Shared(region) => {
                parameters = OutputParameters { shared_memory: Some(region), ..OutputParameters::default() };
                Bytes::new()
            }
        };
        let tensor = Tensor { name: found.name, datatype: found.datatype, shape: found.shape, data };
        decoded.push((tensor, parameters));
    }
    match tensors.unclaimed() {
        0 => Ok(decoded),
        bytes => Err(unsound(format!("{bytes} bytes after the last output"), "none".to_owned())),
    }
}
