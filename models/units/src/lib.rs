//! Durations and sizes as people write them, and mistakes told by file, line and key.
//!
//! Written here because no kept crate refuses as strictly: `humantime` knows no `1.5s`, `jiff` accepts calendar units and
//! signs, and `bytesize` accepts bare numbers and rounds fractions.

#![forbid(unsafe_code)]

mod fault;
mod size;
mod time_span;

use std::fmt;

use serde::Serializer;

pub use fault::Fault;
pub use size::{InvalidSize, Size};
pub use time_span::{InvalidTimeSpan, TimeSpan};

/// Serialises a value as people write it.
///
/// # Errors
/// Those of the serialiser.
pub fn text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serialises a value that may be absent as people write it.
///
/// # Errors
/// Those of the serialiser.
pub fn text_if<S: Serializer>(value: &Option<impl fmt::Display>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// A refused text as messages show it: no longer than a line.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The known word that a person most likely meant.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|known| (strsim::damerau_levenshtein(word, known), *known));
    let near = distances.filter(|(distance, known)| *distance <= 1 + known.len() / 4);
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}
