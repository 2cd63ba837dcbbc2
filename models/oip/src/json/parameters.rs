//! `parameters` objects: members that the protocol defines are decoded, all others are kept.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::text::Text;
use crate::checks::SharedMemoryParts;
use crate::{Limits, Parameter, Parameters};

/// A value of a `parameters` object.
pub(super) enum Value {
    Scalar(Parameter),
    /// An array, an object or null: no parameter value in this protocol.
    Other,
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a boolean, a number or a string")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Scalar(Parameter::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(Parameter::Int(value)))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        let value = i64::try_from(value)
            .map_err(|_| E::custom(format_args!("integer {value}: expected at most {}", i64::MAX)))?;
        self.visit_i64(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Scalar(Parameter::Double(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Scalar(Parameter::String(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }
}

/// `parameters` of a request.
#[derive(Default)]
pub(super) struct RequestParameters {
    pub(super) binary_data_output: Option<bool>,
    pub(super) rest: Rest,
}

/// `parameters` of an input.
#[derive(Default)]
pub(super) struct InputParameters {
    pub(super) binary_data_size: Option<u64>,
    pub(super) shared_memory: SharedMemoryParts,
    pub(super) rest: Rest,
}

/// `parameters` of a requested output. Others than these are ignored, as in Triton.
#[derive(Default)]
pub(super) struct OutputMembers {
    pub(super) binary_data: Option<bool>,
    pub(super) classification: Option<u32>,
    pub(super) shared_memory: SharedMemoryParts,
}

/// `parameters` of an answer: what is a scalar, the first [`Limits::PARAMETERS_MAX`] of it. Servers put objects and
/// null there as well, which say nothing to a client of this protocol.
#[derive(Default)]
pub(super) struct ResponseParameters(pub(super) Parameters);

/// `parameters` of an output in an answer. Others than these are ignored.
#[derive(Default)]
pub(super) struct OutputNotes {
    pub(super) binary_data_size: Option<u64>,
    pub(super) shared_memory: SharedMemoryParts,
}

impl SharedMemoryParts {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "shared_memory_region" => once(&mut self.region, "shared_memory_region", map)?,
            "shared_memory_offset" => once(&mut self.offset, "shared_memory_offset", map)?,
            "shared_memory_byte_size" => once(&mut self.byte_size, "shared_memory_byte_size", map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parameters that the protocol does not define.
#[derive(Default)]
pub(super) struct Rest {
    pub(super) entries: Parameters,
    /// How many there were, those beyond [`Limits::PARAMETERS_MAX`] counted but not kept.
    pub(super) count: usize,
    /// The first one whose value is not a scalar.
    pub(super) composite: Option<String>,
}

impl Rest {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        self.count = self.count.saturating_add(1);
        if self.count > Limits::PARAMETERS_MAX {
            map.next_value::<IgnoredAny>()?;
            return Ok(());
        }
        if self.entries.iter().any(|(name, _)| *name == key) {
            return Err(A::Error::custom(format_args!("duplicate field `{}`", crate::error::truncate(&key))));
        }
        match map.next_value::<Value>()? {
            Value::Scalar(value) => self.entries.push((key.into_owned(), value)),
            Value::Other if self.composite.is_none() => self.composite = Some(key.into_owned()),
            Value::Other => {}
        }
        Ok(())
    }
}

/// Reads a member that may be there once.
fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(A::Error::duplicate_field(name));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

/// Implements `Deserialize` for a `parameters` object: known members by name, then whatever `rest` says.
macro_rules! parameters_object {
    ($object:ident, |$found:ident, $key:ident, $map:ident| $take:expr) => {
        impl<'de> Deserialize<'de> for $object {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ObjectVisitor;

                impl<'de> Visitor<'de> for ObjectVisitor {
                    type Value = $object;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut $map: A) -> Result<$object, A::Error> {
                        let mut $found = $object::default();
                        while let Some(Text($key)) = $map.next_key()? {
                            $take
                        }
                        Ok($found)
                    }
                }

                deserializer.deserialize_map(ObjectVisitor)
            }
        }
    };
}

parameters_object!(RequestParameters, |found, key, map| match &*key {
    "binary_data_output" => once(&mut found.binary_data_output, "binary_data_output", &mut map)?,
    _ => found.rest.take(key, &mut map)?,
});

parameters_object!(InputParameters, |found, key, map| match &*key {
    "binary_data_size" => once(&mut found.binary_data_size, "binary_data_size", &mut map)?,
    _ if found.shared_memory.take(&key, &mut map)? => {}
    _ => found.rest.take(key, &mut map)?,
});

parameters_object!(OutputMembers, |found, key, map| match &*key {
    "binary_data" => once(&mut found.binary_data, "binary_data", &mut map)?,
    "classification" => once(&mut found.classification, "classification", &mut map)?,
    _ if found.shared_memory.take(&key, &mut map)? => {}
    _ => {
        map.next_value::<IgnoredAny>()?;
    }
});

parameters_object!(ResponseParameters, |found, key, map| {
    let text = map.next_value::<&RawValue>()?;
    if let Ok(Value::Scalar(value)) = serde_json::from_str(text.get())
        && found.0.len() < Limits::PARAMETERS_MAX
    {
        found.0.push((key.into_owned(), value));
    }
});

parameters_object!(OutputNotes, |found, key, map| match &*key {
    "binary_data_size" => found.binary_data_size = map.next_value()?,
    _ if found.shared_memory.take(&key, &mut map)? => {}
    _ => {
        map.next_value::<IgnoredAny>()?;
    }
});
