//! The client's side: `ModelInferResponse` to an [`InferResponse`].
//!
//! Servers add parameters of their own, so only the tensors are checked.

use bytes::Bytes;

use super::contents::{self, Place};
use super::decode::{check_name, shared_memory_ref};
use super::parameters::known;
use crate::checks::{self, TensorBytes};
use crate::error::Field;
use crate::proto::model_infer_response::InferOutputTensor;
use crate::proto::{InferTensorContents, ModelInferResponse};
use crate::{InferResponse, Limits, OutputParameters, ProtocolError, Shape, Tensor, binary};

/// Takes an answer apart.
///
/// `raw_output_contents`, of which there must be one for each output if there are any, are moved, not copied;
/// without them the elements are in the typed `contents`. Parameters without a known value are left out. An
/// output in shared memory has no data.
///
/// # Errors
/// A [`ProtocolError`] that names the first member found wrong.
pub fn decode_response(message: ModelInferResponse, limits: &Limits) -> Result<InferResponse, ProtocolError> {
    checks::tensor_count(message.outputs.len(), "outputs", limits)?;
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
    let mut decoded = TensorBytes::new("outputs", limits);
    for (index, output) in message.outputs.into_iter().enumerate() {
        let (tensor, parameters) = self::output(index, output, raw.next(), limits)?;
        checks::unique(&tensor.name, outputs.iter().map(|(earlier, _)| &earlier.name), "outputs", index)?;
        decoded.add(index, tensor.data.len() as u64)?;
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
    let datatype = checks::datatype(&output.datatype, "outputs", index)?;
    let shape = Shape::from_wire(&output.shape).map_err(|source| ProtocolError::Shape {
        field: Field::Member("outputs", index, "shape").to_string(),
        source,
    })?;
    let shared_memory = shared_memory_ref(&mut output.parameters, "outputs", index, limits)?;
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
