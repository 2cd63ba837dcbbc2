//! `ModelInferRequest` to an [`InferRequest`].

use std::collections::BTreeMap;

use bytes::Bytes;

use super::contents::{self, Place};
use super::parameters::{convert, from_proto, take, text, unsigned};
use crate::checks::{self, SharedMemoryParts, TensorBytes};
use crate::error::Field;
use crate::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::proto::{InferParameter, InferTensorContents, ModelInferRequest};
use crate::{
    Datatype, InferRequest, InputTensor, Limits, OutputParameters, ProtocolError, RequestedOutput, Shape,
    SharedMemoryRef, TensorData, binary,
};

/// Takes a request message apart.
///
/// `raw_input_contents` are moved, not copied. An empty version means none.
///
/// # Errors
/// A [`ProtocolError`] that names the first member found wrong.
pub fn decode_infer(message: ModelInferRequest, limits: &Limits) -> Result<InferRequest, ProtocolError> {
    checks::length(&message.id, Field::Top("id"), limits)?;
    checks::tensor_count(message.inputs.len(), "inputs", limits)?;
    checks::tensor_count(message.outputs.len(), "outputs", limits)?;
    let parameters = from_proto(message.parameters, limits)?;
    let has_raw = !message.raw_input_contents.is_empty();
    let raw = has_raw.then(|| message.raw_input_contents.into_iter());
    let inputs = Inputs { raw, raw_used: 0, decoded: TensorBytes::new("inputs", limits), limits }
        .decode(message.inputs)?;
    let outputs =
        if message.outputs.is_empty() { None } else { Some(requested_outputs(message.outputs, limits)?) };
    Ok(InferRequest {
        model_name: message.model_name,
        model_version: Some(message.model_version).filter(|version| !version.is_empty()),
        id: message.id,
        parameters,
        inputs,
        outputs,
        binary_output: true,
    })
}

pub(super) fn check_name(
    name: &str,
    list: &'static str,
    index: usize,
    limits: &Limits,
) -> Result<(), ProtocolError> {
    let field = Field::Member(list, index, "name");
    if name.is_empty() {
        return Err(ProtocolError::Missing { field: field.to_string(), expected: "a string" });
    }
    checks::length(name, field, limits)
}

/// State while the inputs are decoded in order.
struct Inputs<'a> {
    /// `raw_input_contents` that no input has taken yet; `None` if the message has none.
    raw: Option<std::vec::IntoIter<Bytes>>,
    raw_used: usize,
    decoded: TensorBytes,
    limits: &'a Limits,
}

impl Inputs<'_> {
    fn decode(mut self, inputs: Vec<InferInputTensor>) -> Result<Vec<InputTensor>, ProtocolError> {
        let mut decoded: Vec<InputTensor> = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.into_iter().enumerate() {
            let tensor = self.input(index, input)?;
            checks::unique(&tensor.name, decoded.iter().map(|earlier| &earlier.name), "inputs", index)?;
            decoded.push(tensor);
        }
        let left = self.raw.map_or(0, |raw| raw.len());
        if left > 0 {
            return Err(ProtocolError::Value {
                field: "raw_input_contents".to_owned(),
                found: format!("{} entries", self.raw_used.saturating_add(left)),
                expected: format!("{}, one for each input that is not in shared memory", self.raw_used),
            });
        }
        Ok(decoded)
    }

    fn input(&mut self, index: usize, mut input: InferInputTensor) -> Result<InputTensor, ProtocolError> {
        check_name(&input.name, "inputs", index, self.limits)?;
        let datatype = checks::datatype(&input.datatype, "inputs", index)?;
        let shape =
            Shape::from_wire(&input.shape).and_then(|shape| shape.holding(datatype)).map_err(|source| {
                ProtocolError::Shape { field: Field::input(index, "shape").to_string(), source }
            })?;
        let shared = shared_memory_ref(&mut input.parameters, "inputs", index, self.limits)?;
        let data = match (shared, input.contents) {
            (Some(region), None) => TensorData::Shared(region),
            (Some(_), Some(_)) => {
                return Err(data_source(index, "`contents` and `parameters.shared_memory_region`"));
            }
            (None, contents) => TensorData::Inline(self.inline(index, datatype, &shape, contents)?),
        };
        let parameters = convert(input.parameters, Field::input(index, "parameters"), self.limits)?;
        Ok(InputTensor { name: input.name, datatype, shape, data, parameters })
    }

    fn inline(
        &mut self,
        index: usize,
        datatype: Datatype,
        shape: &Shape,
        contents: Option<InferTensorContents>,
    ) -> Result<Bytes, ProtocolError> {
        let Some(raw) = &mut self.raw else {
            let data = contents::decode(contents.unwrap_or_default(), datatype, shape, Place::Input(index))?;
            self.decoded.add(index, data.len() as u64)?;
            return Ok(data);
        };
        if contents.is_some() {
            return Err(data_source(index, "`contents` and `raw_input_contents`"));
        }
        let data = raw.next().ok_or_else(|| ProtocolError::Value {
            field: "raw_input_contents".to_owned(),
            found: format!("{} entries", self.raw_used),
            expected: "one for each input that is not in shared memory".to_owned(),
        })?;
        binary::check(&data, datatype, shape, Field::Entry("raw_input_contents", self.raw_used))?;
        self.raw_used = self.raw_used.saturating_add(1);
        self.decoded.add(index, data.len() as u64)?;
        Ok(data)
    }
}

fn data_source(index: usize, found: &'static str) -> ProtocolError {
    ProtocolError::DataSource {
        field: Field::Entry("inputs", index).to_string(),
        found,
        choices: "`contents`, `raw_input_contents` and `parameters.shared_memory_region`",
    }
}

pub(super) fn shared_memory_ref(
    parameters: &mut BTreeMap<String, InferParameter>,
    list: &'static str,
    index: usize,
    limits: &Limits,
) -> Result<Option<SharedMemoryRef>, ProtocolError> {
    if parameters.is_empty() {
        return Ok(None);
    }
    let field = Field::Entry(list, index);
    let region = take(parameters, field, "shared_memory_region", "a string", text)?;
    let offset = take(parameters, field, "shared_memory_offset", "an integer of 0 or more", unsigned)?;
    let byte_size = take(parameters, field, "shared_memory_byte_size", "an integer of 0 or more", unsigned)?;
    SharedMemoryParts { region, offset, byte_size }.complete(list, index, limits)
}

fn requested_outputs(
    outputs: Vec<InferRequestedOutputTensor>,
    limits: &Limits,
) -> Result<Vec<RequestedOutput>, ProtocolError> {
    let mut decoded: Vec<RequestedOutput> = Vec::with_capacity(outputs.len());
    for (index, mut output) in outputs.into_iter().enumerate() {
        check_name(&output.name, "outputs", index, limits)?;
        checks::unique(&output.name, decoded.iter().map(|earlier| &earlier.name), "outputs", index)?;
        let field = Field::Entry("outputs", index);
        let classes =
            take(&mut output.parameters, field, "classification", "an integer of 0 or more", |value| {
                unsigned(value).and_then(|classes| u32::try_from(classes).ok())
            })?;
        decoded.push(RequestedOutput {
            name: output.name,
            parameters: OutputParameters {
                binary: None,
                classification: classes.filter(|&classes| classes > 0),
                shared_memory: shared_memory_ref(&mut output.parameters, "outputs", index, limits)?,
            },
        });
    }
    Ok(decoded)
}
