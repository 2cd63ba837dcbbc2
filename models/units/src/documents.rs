//! TOML to documents, with faults told as paths and lines.

use serde::de::DeserializeOwned;

use crate::{Fault, Lines, in_words, line_at, nearest};

/// Reads the text as TOML of the right shape.
///
/// # Errors
/// The first key that is unknown, missing or of the wrong shape, with its line and what would be right.
pub fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    let broken = |error: &toml::de::Error, field: String, problem: String| {
        let mut fault = Fault::new(field, problem);
        fault.line = error.span().map(|span| line_at(text, span.start));
        fault
    };
    let deserializer = toml::Deserializer::parse(text)
        .map_err(|error| broken(&error, String::new(), error.message().to_owned()))?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        let (field, problem) = explain(&path, error.inner().message());
        let mut fault = broken(error.inner(), field, problem);
        fault.line = Lines::of(text).find(&fault.field).or(fault.line);
        fault
    })
}

/// The key at fault and what is wrong with it, from serde's words.
fn explain(path: &str, message: &str) -> (String, String) {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let key = quoted.next().unwrap_or_default();
    let below = |key: &str| match path {
        "" => key.to_owned(),
        path if path == key || path.ends_with(&format!(".{key}")) => path.to_owned(),
        path => format!("{path}.{key}"),
    };
    if message.starts_with("unknown field") {
        let known: Vec<&str> = quoted.collect();
        let problem = match nearest(key, &known) {
            Some(near) => format!("unknown key, did you mean `{near}`?"),
            None => format!("unknown key: expected one of {}", known.join(", ")),
        };
        (below(key), problem)
    } else if message.starts_with("missing field") {
        (below(key), "expected a value: this key has no default".to_owned())
    } else {
        (path.to_owned(), in_words(message))
    }
}
