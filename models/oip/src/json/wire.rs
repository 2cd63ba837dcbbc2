//! Requests and responses as JSON members, before their values are checked.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::parameters::{InputParameters, OutputMembers, OutputNotes, RequestParameters, ResponseParameters};
use super::text::Text;
use crate::error::truncate;
use crate::{Limits, ProtocolError, Shape};

/// A request. Members that are null count as absent; unknown members are ignored, as in Triton.
#[derive(Deserialize)]
pub(super) struct Request<'a> {
    pub(super) id: Option<String>,
    pub(super) parameters: Option<RequestParameters>,
    #[serde(borrow)]
    pub(super) inputs: Option<Bounded<Object<Input<'a>>>>,
    pub(super) outputs: Option<Bounded<Object<Output>>>,
}

/// An input.
#[derive(Deserialize)]
pub(super) struct Input<'a> {
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) datatype: Option<Text<'a>>,
    pub(super) shape: Option<Dims>,
    pub(super) parameters: Option<InputParameters>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
}

/// A requested output.
#[derive(Deserialize)]
pub(super) struct Output {
    pub(super) name: Option<String>,
    pub(super) parameters: Option<OutputMembers>,
}

/// An answer. Members that are null count as absent; unknown members are ignored.
#[derive(Deserialize)]
pub(super) struct Response<'a> {
    pub(super) model_name: Option<String>,
    pub(super) model_version: Option<String>,
    pub(super) id: Option<String>,
    pub(super) parameters: Option<ResponseParameters>,
    #[serde(borrow)]
    pub(super) outputs: Option<Bounded<Object<AnsweredOutput<'a>>>>,
}

/// An output with its data.
#[derive(Deserialize)]
pub(super) struct AnsweredOutput<'a> {
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) datatype: Option<Text<'a>>,
    pub(super) shape: Option<Dims>,
    pub(super) parameters: Option<OutputNotes>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
}

/// Takes the text apart. Errors call it `whole`.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8], whole: &str) -> Result<T, ProtocolError> {
    // RawValue needs the text to be UTF-8 as a whole, and says so only in passing.
    let text = std::str::from_utf8(text).map_err(|error| ProtocolError::Json {
        field: whole.to_owned(),
        problem: format!("not UTF-8 at byte {}: expected JSON", error.valid_up_to()),
    })?;
    serde_json::from_str::<Object<T>>(text)
        .map(|Object(members)| members)
        .map_err(|error| explain::<T>(text, whole, &error))
}

/// Parses again to find out where the error is: the path costs time that good requests need not pay.
fn explain<'a, T: Deserialize<'a>>(text: &'a str, whole: &str, error: &serde_json::Error) -> ProtocolError {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let located = serde_path_to_error::deserialize::<_, Object<T>>(&mut deserializer).err();
    let path = located.map(|located| located.path().to_string()).unwrap_or_default();
    // The path ends in a question mark where the text broke off before a name.
    let path = path.trim_end_matches(['.', '?']);
    let field = if path.is_empty() { whole } else { truncate(path) };
    let message = error.to_string();
    let mut problem = truncate(&message).to_owned();
    if problem.len() < message.len() {
        problem.push_str(&format!("... at line {} column {}", error.line(), error.column()));
    }
    ProtocolError::Json { field: field.to_owned(), problem }
}

/// A JSON object, and nothing else: a derived struct alone would take an array of its members as well.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A list of which at most [`Limits::TENSORS_MAX`] entries are kept. The configured limit is checked afterwards.
pub(super) struct Bounded<T> {
    pub(super) entries: Vec<T>,
    pub(super) count: usize,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = Bounded<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Bounded<T>, A::Error> {
                let mut entries = Vec::new();
                while entries.len() < Limits::TENSORS_MAX {
                    let Some(entry) = seq.next_element()? else {
                        return Ok(Bounded { count: entries.len(), entries });
                    };
                    entries.push(entry);
                }
                let mut count = entries.len();
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    count = count.saturating_add(1);
                }
                Ok(Bounded { entries, count })
            }
        }

        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// The numbers of a `shape`; at most [`Shape::MAX_RANK`] are kept.
pub(super) struct Dims {
    pub(super) kept: SmallVec<[i64; 6]>,
    pub(super) count: usize,
}

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimsVisitor;

        impl<'de> Visitor<'de> for DimsVisitor {
            type Value = Dims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of integers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Dims, A::Error> {
                let mut dims = Dims { kept: SmallVec::new(), count: 0 };
                while let Some(dim) = seq.next_element::<i64>()? {
                    dims.count = dims.count.saturating_add(1);
                    if dims.count <= Shape::MAX_RANK {
                        dims.kept.push(dim);
                    }
                }
                Ok(dims)
            }
        }

        deserializer.deserialize_seq(DimsVisitor)
    }
}
