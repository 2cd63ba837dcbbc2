//! The client's side: `ModelInferResponse` to an [`InferResponse`].
//!
//! Servers add parameters of their own, so only the tensors are checked.

use bytes::Bytes;

use super::contents::{self, Place};
use super::decode::{check_count, check_name, shared_memory_ref};
use super::parameters::known;
use crate::error::{Field, truncate};
use crate::proto::model_infer_response::InferOutputTensor;
use crate::proto::{InferTensorContents, ModelInferResponse};
use crate::{Datatype, InferResponse, Limits, OutputParameters, ProtocolError, Shape, Tensor, binary};

/// Takes an answer apart.
///
/// `raw_output_contents`, of which there must be one for each output if there are any, are moved, not copied;
/// without them the elements are in the typed `contents`. Parameters without a known value are left out. An
/// output in shared memory has no data.
///
/// # Errors
/// A [`ProtocolError`] that names the first member found wrong.
pub fn decode_response(message: ModelInferResponse, limits: &Limits) -> Result<InferResponse, ProtocolError> {
    check_count(message.outputs.len(), "outputs", limits)?;
    let raw_count = message.raw_output_contents.len();
    if raw_count != 0 && raw_count != message.outputs.len() {
        return Err(ProtocolError::Value {
            field: "raw_output_contents".to_owned(),
            found: format!("{raw_count} entries"),
            expected: format!("{}, one for each output", message.outputs.len()),
        });
    }
    let mut raw = message.raw_output_contents.into_iter();
    let mut outputs: Vec<(Tensor, OutputParameters)> = Vec::with_capacity(message.outputs.len());
    let mut bytes = 0_u64;
    for (index, output) in message.outputs.into_iter().enumerate() {
        let (tensor, parameters) = self::output(index, output, raw.next(), limits)?;
        if outputs.iter().any(|(earlier, _)| earlier.name == tensor.name) {
            return Err(ProtocolError::Duplicate {
                field: Field::Member("outputs", index, "name").to_string(),
                name: truncate(&tensor.name).to_owned(),
            });
        }
        bytes = bytes.saturating_add(tensor.data.len() as u64);
        if bytes > limits.tensor_bytes as u64 {
            let field = Field::Entry("outputs", index).to_string();
            return Err(ProtocolError::TensorTooLarge { field, bytes, limit: limits.tensor_bytes });
        }
        outputs.push((tensor, parameters));
    }
    Ok(InferResponse {
        model_name: message.model_name,
        model_version: message.model_version,
        id: message.id,
        parameters: known(message.parameters, limits),
        outputs,
    })
}

fn output(
    index: usize,
    mut output: InferOutputTensor,
    raw: Option<Bytes>,
    limits: &Limits,
) -> Result<(Tensor, OutputParameters), ProtocolError> {
    check_name(&output.name, "outputs", index, limits)?;
    let member = |member| Field::Member("outputs", index, member).to_string();
    let datatype: Datatype = output
        .datatype
        .parse()
        .map_err(|source| ProtocolError::Datatype { field: member("datatype"), source })?;
    let shape = Shape::from_wire(&output.shape)
        .map_err(|source| ProtocolError::Shape { field: member("shape"), source })?;
    let shared_memory = shared_memory_ref(&mut output.parameters, Field::Entry("outputs", index), limits)?;
    // A message that is there but empty, and raw data that is there but empty, hold the place of nothing.
    let contents = output.contents.filter(|contents| *contents != InferTensorContents::default());
    let data = match (&shared_memory, contents, raw) {
        (None, None, Some(raw)) => {
            binary::check(&raw, datatype, &shape, Field::Entry("raw_output_contents", index))?;
            raw
        }
        (None, contents, None) => {
            contents::decode(contents.unwrap_or_default(), datatype, &shape, Place::Output(index))?
        }
        (None, Some(contents), Some(raw)) if raw.is_empty() => {
            contents::decode(contents, datatype, &shape, Place::Output(index))?
        }
        (Some(_), None, raw) if raw.as_ref().is_none_or(Bytes::is_empty) => Bytes::new(),
        (shared, contents, _) => return Err(data_source(index, shared.is_some(), contents.is_some())),
    };
    let tensor = Tensor { name: output.name, datatype, shape, data };
    Ok((tensor, OutputParameters { binary: None, classification: None, shared_memory }))
}

fn data_source(index: usize, shared: bool, contents: bool) -> ProtocolError {
    let found = match (shared, contents) {
        (true, true) => "`contents` and `parameters.shared_memory_region`",
        (true, false) => "`raw_output_contents` and `parameters.shared_memory_region`",
        (false, _) => "`contents` and `raw_output_contents`",
    };
    ProtocolError::DataSource {
        field: Field::Entry("outputs", index).to_string(),
        found,
        choices: "`contents`, `raw_output_contents` and `parameters.shared_memory_region`",
    }
}
