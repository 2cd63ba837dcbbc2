//! Checks that the JSON and the protobuf decoders have in common.

use crate::error::{Field, truncate};
use crate::{Datatype, Limits, ProtocolError, SharedMemoryRef};

/// Checks the length of a name or an id.
pub(crate) fn length(text: &str, field: Field<'_>, limits: &Limits) -> Result<(), ProtocolError> {
    if text.len() > limits.name_bytes {
        let field = field.to_string();
        return Err(ProtocolError::TooLong { field, bytes: text.len(), limit: limits.name_bytes });
    }
    Ok(())
}

/// Checks the number of inputs or outputs.
pub(crate) fn tensor_count(count: usize, list: &'static str, limits: &Limits) -> Result<(), ProtocolError> {
    at_most(limits.tensors.min(Limits::TENSORS_MAX), count, Field::Top(list))
}

/// Checks the number of parameters.
pub(crate) fn parameter_count(count: usize, field: Field<'_>, limits: &Limits) -> Result<(), ProtocolError> {
    at_most(limits.parameters.min(Limits::PARAMETERS_MAX), count, field)
}

fn at_most(limit: usize, count: usize, field: Field<'_>) -> Result<(), ProtocolError> {
    if count > limit {
        return Err(ProtocolError::TooMany { field: field.to_string(), count, limit });
    }
    Ok(())
}

/// Checks that an entry's name differs from those of the entries before it.
pub(crate) fn unique<'a>(
    name: &str,
    mut earlier: impl Iterator<Item = &'a String>,
    list: &'static str,
    index: usize,
) -> Result<(), ProtocolError> {
    if earlier.any(|earlier| earlier == name) {
        let field = Field::Member(list, index, "name").to_string();
        return Err(ProtocolError::Duplicate { field, name: truncate(name).to_owned() });
    }
    Ok(())
}

/// Parses a datatype.
pub(crate) fn datatype(word: &str, list: &'static str, index: usize) -> Result<Datatype, ProtocolError> {
    word.parse().map_err(|source| ProtocolError::Datatype {
        field: Field::Member(list, index, "datatype").to_string(),
        source,
    })
}

/// Bytes of the tensors of one list that were decoded so far.
pub(crate) struct TensorBytes {
    list: &'static str,
    bytes: u64,
    limit: usize,
}

impl TensorBytes {
    pub(crate) fn new(list: &'static str, limits: &Limits) -> Self {
        Self { list, bytes: 0, limit: limits.tensor_bytes }
    }

    /// Adds the bytes of a tensor.
    pub(crate) fn add(&mut self, index: usize, bytes: u64) -> Result<(), ProtocolError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit as u64 {
            let field = Field::Entry(self.list, index).to_string();
            return Err(ProtocolError::TensorTooLarge { field, bytes: self.bytes, limit: self.limit });
        }
        Ok(())
    }
}

/// The three parameters that refer to a shared-memory region.
#[derive(Default)]
pub(crate) struct SharedMemoryParts {
    pub(crate) region: Option<String>,
    pub(crate) offset: Option<u64>,
    pub(crate) byte_size: Option<u64>,
}

impl SharedMemoryParts {
    /// The region that they refer to; `None` without any of them.
    pub(crate) fn complete(
        self,
        list: &'static str,
        index: usize,
        limits: &Limits,
    ) -> Result<Option<SharedMemoryRef>, ProtocolError> {
        let at = |name| Field::EntryParameter(list, index, name);
        let missing = |name, expected| ProtocolError::Missing { field: at(name).to_string(), expected };
        let Some(region) = self.region else {
            if self.offset.is_some() || self.byte_size.is_some() {
                return Err(missing("shared_memory_region", "the name of a registered region"));
            }
            return Ok(None);
        };
        length(&region, at("shared_memory_region"), limits)?;
        let byte_size =
            self.byte_size.ok_or_else(|| missing("shared_memory_byte_size", "a number of bytes"))?;
        Ok(Some(SharedMemoryRef { region, offset: self.offset.unwrap_or(0), byte_size }))
    }
}
