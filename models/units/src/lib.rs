//! Durations, sizes and commands as people write them, and mistakes told by file, line and key.
//!
//! Written here because no kept crate refuses as strictly: `humantime` knows no `1.5s`, `jiff` accepts calendar units and
//! signs, and `bytesize` accepts bare numbers and rounds fractions.

#![forbid(unsafe_code)]

mod documents;
mod fault;
mod lines;
mod messages;
mod percentile_limit;
mod shell;
mod size;
mod time_span;

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Serializer;
use serde::de::{Deserializer, Error, Visitor};

pub use documents::parse_toml;
pub use fault::Fault;
pub use lines::{Lines, line_at};
pub use messages::in_words;
pub use percentile_limit::{InvalidPercentileLimit, PercentileLimit};
pub use shell::{flags, shell_word};
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

/// Parses a string. `expected` names what a value of another type should have been.
fn from_text<'de, D, T>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    struct Text<T>(&'static str, PhantomData<T>);

    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text(expected, PhantomData))
}

/// A refused text as messages show it: no longer than a line.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The known word that a person most likely meant.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // `max-delay` and `maxdelay` mean `max_delay`.
    let bare = |text: &str| text.replace(['_', '-'], "");
    let distance = |known: &str| {
        let exact = strsim::damerau_levenshtein(word, known);
        (strsim::damerau_levenshtein(&bare(word), &bare(known)), exact)
    };
    let distances = known.iter().map(|known| (distance(known), *known));
    let near = distances.filter(|((bare, _), known)| *bare <= 1 + known.len() / 4);
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}
