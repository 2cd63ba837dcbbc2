//! A JSON body to an [`InferRequest`].

use bytes::Bytes;

use super::parameters::{InputParameters, OutputMembers, RequestParameters, Rest, SharedMemoryParts};
use super::{depth, elements, wire};
use crate::error::{Field, cut};
use crate::{
    Datatype, InferRequest, InputTensor, Limits, OutputParameters, Parameters, ProtocolError,
    RequestedOutput, Shape, SharedMemoryRef, TensorData, binary,
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
    let request = wire::parse(text)?;

    let id = request.id.unwrap_or_default();
    check_length(&id, Field::Top("id"), limits)?;
    let (parameters, binary_output) = request_parameters(request.parameters, limits)?;
    let inputs = request.inputs.ok_or_else(|| missing(Field::Top("inputs"), "an array of tensors"))?;
    let inputs = bounded(inputs, "inputs", limits)?;
    let outputs = request.outputs.map(|outputs| bounded(outputs, "outputs", limits)).transpose()?;

    Ok(InferRequest {
        model_name: model_name.to_owned(),
        model_version: model_version.map(str::to_owned),
        id,
        parameters,
        inputs: Inputs { tail: body.slice_ref(tail), decoded_bytes: 0, limits }.decode(inputs)?,
        outputs: outputs
            .filter(|outputs| !outputs.is_empty())
            .map(|list| requested_outputs(list, limits))
            .transpose()?,
        binary_output,
    })
}

fn missing(field: Field<'_>, expected: &'static str) -> ProtocolError {
    ProtocolError::Missing { field: field.to_string(), expected }
}

fn check_length(text: &str, field: Field<'_>, limits: &Limits) -> Result<(), ProtocolError> {
    if text.len() > limits.name_bytes {
        let field = field.to_string();
        return Err(ProtocolError::TooLong { field, bytes: text.len(), limit: limits.name_bytes });
    }
    Ok(())
}

fn bounded<T>(
    list: wire::Bounded<wire::Object<T>>,
    name: &'static str,
    limits: &Limits,
) -> Result<Vec<T>, ProtocolError> {
    let limit = limits.tensors.min(Limits::TENSORS_MAX);
    if list.count > limit {
        return Err(ProtocolError::TooMany { field: name.to_owned(), count: list.count, limit });
    }
    Ok(list.entries.into_iter().map(|wire::Object(entry)| entry).collect())
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

fn rest_parameters(rest: Rest, field: Field<'_>, limits: &Limits) -> Result<Parameters, ProtocolError> {
    let limit = limits.parameters.min(Limits::PARAMETERS_MAX);
    if rest.count > limit {
        return Err(ProtocolError::TooMany { field: field.to_string(), count: rest.count, limit });
    }
    for (name, _) in &rest.entries {
        check_length(name, field, limits)?;
    }
    Ok(rest.entries)
}

/// State while the inputs are decoded in order.
struct Inputs<'a> {
    /// Binary data that no input has claimed yet.
    tail: Bytes,
    decoded_bytes: u64,
    limits: &'a Limits,
}

impl Inputs<'_> {
    fn decode(mut self, inputs: Vec<wire::Input<'_>>) -> Result<Vec<InputTensor>, ProtocolError> {
        let mut decoded: Vec<InputTensor> = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.into_iter().enumerate() {
            let tensor = self.input(index, input)?;
            if decoded.iter().any(|earlier| earlier.name == tensor.name) {
                return Err(duplicate(Field::input(index, "name"), &tensor.name));
            }
            decoded.push(tensor);
        }
        if !self.tail.is_empty() {
            return Err(ProtocolError::Unclaimed { bytes: self.tail.len() });
        }
        Ok(decoded)
    }

    fn input(&mut self, index: usize, input: wire::Input<'_>) -> Result<InputTensor, ProtocolError> {
        let name = input.name.ok_or_else(|| missing(Field::input(index, "name"), "a string"))?;
        check_length(&name, Field::input(index, "name"), self.limits)?;
        let datatype = input.datatype.ok_or_else(|| missing(Field::input(index, "datatype"), "a string"))?;
        let datatype: Datatype = datatype.0.parse().map_err(|source| ProtocolError::Datatype {
            field: Field::input(index, "datatype").to_string(),
            source,
        })?;
        let shape =
            input.shape.ok_or_else(|| missing(Field::input(index, "shape"), "an array of integers"))?;
        let shape = shape_of(&shape).map_err(|source| ProtocolError::Shape {
            field: Field::input(index, "shape").to_string(),
            source,
        })?;
        let InputParameters { binary_data_size, shared_memory, rest } = input.parameters.unwrap_or_default();
        let shared = shared_memory_ref(shared_memory, "inputs", index, self.limits)?;
        let data = match (input.data, binary_data_size, shared) {
            (None, None, Some(region)) => TensorData::Shared(region),
            (Some(text), None, None) => TensorData::Inline(self.json(index, datatype, &shape, text.get())?),
            (None, Some(size), None) => TensorData::Inline(self.binary(index, datatype, &shape, size)?),
            (data, size, shared) => {
                return Err(data_source(index, data.is_some(), size.is_some(), shared.is_some()));
            }
        };
        let parameters = rest_parameters(rest, Field::input(index, "parameters"), self.limits)?;
        Ok(InputTensor { name, datatype, shape, data, parameters })
    }

    fn json(
        &mut self,
        index: usize,
        datatype: Datatype,
        shape: &Shape,
        text: &str,
    ) -> Result<Bytes, ProtocolError> {
        let target = elements::Target { datatype, shape, field: Field::input(index, "data") };
        if let Some(size) = datatype.size() {
            self.claim(index, binary::element_count(shape).saturating_mul(size as u64))?;
            return Ok(elements::parse(text, target)?.into());
        }
        let data = elements::parse(text, target)?;
        self.claim(index, data.len() as u64)?;
        Ok(data.into())
    }

    fn binary(
        &mut self,
        index: usize,
        datatype: Datatype,
        shape: &Shape,
        bytes: u64,
    ) -> Result<Bytes, ProtocolError> {
        let field = Field::EntryParameter("inputs", index, "binary_data_size");
        let size = usize::try_from(bytes).ok().filter(|&size| size <= self.tail.len()).ok_or_else(|| {
            ProtocolError::BinaryBeyondBody { field: field.to_string(), bytes, available: self.tail.len() }
        })?;
        self.claim(index, bytes)?;
        let data = self.tail.split_to(size);
        binary::check(&data, datatype, shape, field)?;
        Ok(data)
    }

    fn claim(&mut self, index: usize, bytes: u64) -> Result<(), ProtocolError> {
        self.decoded_bytes = self.decoded_bytes.saturating_add(bytes);
        if self.decoded_bytes > self.limits.tensor_bytes as u64 {
            return Err(ProtocolError::TensorTooLarge {
                field: Field::Entry("inputs", index).to_string(),
                bytes: self.decoded_bytes,
                limit: self.limits.tensor_bytes,
            });
        }
        Ok(())
    }
}

fn duplicate(field: Field<'_>, name: &str) -> ProtocolError {
    ProtocolError::Duplicate { field: field.to_string(), name: cut(name).to_owned() }
}

fn shape_of(dims: &wire::Dims) -> Result<Shape, crate::ShapeError> {
    if dims.count > Shape::MAX_RANK {
        return Err(crate::ShapeError::Rank(dims.count));
    }
    Shape::from_wire(&dims.kept)
}

fn data_source(index: usize, data: bool, binary: bool, shared: bool) -> ProtocolError {
    let found = match (data, binary, shared) {
        (true, true, false) => "`data` and `parameters.binary_data_size`",
        (true, false, true) => "`data` and `parameters.shared_memory_region`",
        (false, true, true) => "`parameters.binary_data_size` and `parameters.shared_memory_region`",
        (true, true, true) => "data in three places",
        _ => "no data",
    };
    ProtocolError::DataSource {
        field: Field::Entry("inputs", index).to_string(),
        found,
        choices: "`data`, `parameters.binary_data_size` and `parameters.shared_memory_region`",
    }
}

fn shared_memory_ref(
    parts: SharedMemoryParts,
    list: &'static str,
    index: usize,
    limits: &Limits,
) -> Result<Option<SharedMemoryRef>, ProtocolError> {
    let at = |name| Field::EntryParameter(list, index, name);
    let Some(region) = parts.region else {
        if parts.offset.is_some() || parts.byte_size.is_some() {
            return Err(missing(at("shared_memory_region"), "the name of a registered region"));
        }
        return Ok(None);
    };
    check_length(&region, at("shared_memory_region"), limits)?;
    let byte_size =
        parts.byte_size.ok_or_else(|| missing(at("shared_memory_byte_size"), "a number of bytes"))?;
    Ok(Some(SharedMemoryRef { region, offset: parts.offset.unwrap_or(0), byte_size }))
}

fn requested_outputs(
    outputs: Vec<wire::Output>,
    limits: &Limits,
) -> Result<Vec<RequestedOutput>, ProtocolError> {
    let mut decoded: Vec<RequestedOutput> = Vec::with_capacity(outputs.len());
    for (index, output) in outputs.into_iter().enumerate() {
        let field = Field::Member("outputs", index, "name");
        let name = output.name.ok_or_else(|| missing(field, "a string"))?;
        check_length(&name, field, limits)?;
        if decoded.iter().any(|earlier| earlier.name == name) {
            return Err(duplicate(field, &name));
        }
        let OutputMembers { binary_data, classification, shared_memory } =
            output.parameters.unwrap_or_default();
        decoded.push(RequestedOutput {
            name,
            parameters: OutputParameters {
                binary: binary_data,
                classification: classification.filter(|&classes| classes > 0),
                shared_memory: shared_memory_ref(shared_memory, "outputs", index, limits)?,
            },
        });
    }
    Ok(decoded)
}
