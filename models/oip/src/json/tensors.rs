//! Tensors of a JSON body: the inputs of a request or the outputs of a response, which have the same form.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::parameters::Rest;
use super::text::Text;
use super::{elements, wire};
use crate::checks::{self, SharedMemoryParts, TensorBytes};
use crate::error::Field;
use crate::{Datatype, Limits, Parameters, ProtocolError, Shape, TensorData, binary};

/// Members of a tensor. Null counts as absent.
pub(super) struct Members<'a> {
    pub(super) name: Option<String>,
    pub(super) datatype: Option<Text<'a>>,
    pub(super) shape: Option<wire::Dims>,
    pub(super) data: Option<&'a RawValue>,
    pub(super) binary_data_size: Option<u64>,
    pub(super) shared_memory: SharedMemoryParts,
}

/// A tensor whose data matches its datatype and shape.
pub(super) struct Decoded {
    pub(super) name: String,
    pub(super) datatype: Datatype,
    pub(super) shape: Shape,
    pub(super) data: TensorData,
}

/// State while the tensors of one list are decoded in order.
pub(super) struct Tensors<'a> {
    list: &'static str,
    count: usize,
    /// Binary data that no tensor has claimed yet.
    tail: Bytes,
    decoded: TensorBytes,
    limits: &'a Limits,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(list: &'static str, tail: Bytes, limits: &'a Limits) -> Self {
        Self { list, count: 0, tail, decoded: TensorBytes::new(list, limits), limits }
    }

    /// Bytes of the tail that no tensor has claimed.
    pub(super) fn unclaimed(&self) -> usize {
        self.tail.len()
    }

    /// Decodes the next tensor of the list.
    pub(super) fn next(&mut self, members: Members<'_>) -> Result<Decoded, ProtocolError> {
        let index = self.count;
        self.count = self.count.saturating_add(1);
        let name = members.name.ok_or_else(|| missing(self.member(index, "name"), "a string"))?;
        checks::length(&name, self.member(index, "name"), self.limits)?;
        let datatype = members.datatype.ok_or_else(|| missing(self.member(index, "datatype"), "a string"))?;
        let datatype = checks::datatype(&datatype.0, self.list, index)?;
        let shape =
            members.shape.ok_or_else(|| missing(self.member(index, "shape"), "an array of integers"))?;
        let shape = shape_of(&shape).and_then(|shape| shape.holding(datatype)).map_err(|source| {
            ProtocolError::Shape { field: self.member(index, "shape").to_string(), source }
        })?;
        let shared = members.shared_memory.complete(self.list, index, self.limits)?;
        let data = match (members.data, members.binary_data_size, shared) {
            (None, None, Some(region)) => TensorData::Shared(region),
            (Some(text), None, None) => TensorData::Inline(self.json(index, datatype, &shape, text.get())?),
            (None, Some(size), None) => TensorData::Inline(self.binary(index, datatype, &shape, size)?),
            (data, size, shared) => {
                return Err(data_source(self.list, index, data.is_some(), size.is_some(), shared.is_some()));
            }
        };
        Ok(Decoded { name, datatype, shape, data })
    }

    fn json(
        &mut self,
        index: usize,
        datatype: Datatype,
        shape: &Shape,
        text: &str,
    ) -> Result<Bytes, ProtocolError> {
        let target = elements::Target { datatype, shape, field: self.member(index, "data") };
        if binary::element_count(shape) > elements::most_elements(text) {
            elements::check_count(text, target)?;
        }
        if let Some(size) = datatype.size() {
            self.decoded.add(index, binary::element_count(shape).saturating_mul(size as u64))?;
            return Ok(elements::parse(text, target)?.into());
        }
        let data = elements::parse(text, target)?;
        self.decoded.add(index, data.len() as u64)?;
        Ok(data.into())
    }

    fn binary(
        &mut self,
        index: usize,
        datatype: Datatype,
        shape: &Shape,
        bytes: u64,
    ) -> Result<Bytes, ProtocolError> {
        let field = Field::EntryParameter(self.list, index, "binary_data_size");
        let size = usize::try_from(bytes).ok().filter(|&size| size <= self.tail.len()).ok_or_else(|| {
            ProtocolError::BinaryBeyondBody { field: field.to_string(), bytes, available: self.tail.len() }
        })?;
        self.decoded.add(index, bytes)?;
        let data = self.tail.split_to(size);
        binary::check(&data, datatype, shape, field)?;
        Ok(data)
    }

    fn member(&self, index: usize, member: &'static str) -> Field<'static> {
        Field::Member(self.list, index, member)
    }
}

pub(super) fn missing(field: Field<'_>, expected: &'static str) -> ProtocolError {
    ProtocolError::Missing { field: field.to_string(), expected }
}

pub(super) fn bounded<T>(
    list: wire::Bounded<wire::Object<T>>,
    name: &'static str,
    limits: &Limits,
) -> Result<Vec<T>, ProtocolError> {
    checks::tensor_count(list.count, name, limits)?;
    Ok(list.entries.into_iter().map(|wire::Object(entry)| entry).collect())
}

pub(super) fn rest_parameters(
    rest: Rest,
    field: Field<'_>,
    limits: &Limits,
) -> Result<Parameters, ProtocolError> {
    checks::parameter_count(rest.count, field, limits)?;
    for (name, _) in &rest.entries {
        checks::length(name, field, limits)?;
    }
    Ok(rest.entries)
}

fn shape_of(dims: &wire::Dims) -> Result<Shape, crate::ShapeError> {
    if dims.count > Shape::MAX_RANK {
        return Err(crate::ShapeError::Rank(dims.count));
    }
    Shape::from_wire(&dims.kept)
}

fn data_source(list: &'static str, index: usize, data: bool, binary: bool, shared: bool) -> ProtocolError {
    let found = match (data, binary, shared) {
        (true, true, false) => "`data` and `parameters.binary_data_size`",
        (true, false, true) => "`data` and `parameters.shared_memory_region`",
        (false, true, true) => "`parameters.binary_data_size` and `parameters.shared_memory_region`",
        (true, true, true) => "data in three places",
        _ => "no data",
    };
    ProtocolError::DataSource {
        field: Field::Entry(list, index).to_string(),
        found,
        choices: "`data`, `parameters.binary_data_size` and `parameters.shared_memory_region`",
    }
}
