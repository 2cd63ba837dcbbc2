//! Attributes of OTLP: names with values.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

/// Longest text in bytes. Longer ones end early, so that one message cannot fill a batch.
const TEXT_MAX: usize = 1024;

pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    with(key, Value::StringValue(bounded(value).to_owned()))
}

pub(crate) fn integer(key: &str, value: impl TryInto<i64>) -> KeyValue {
    with(key, Value::IntValue(value.try_into().unwrap_or(i64::MAX)))
}

pub(crate) fn float(key: &str, value: f64) -> KeyValue {
    with(key, Value::DoubleValue(value))
}

pub(crate) fn boolean(key: &str, value: bool) -> KeyValue {
    with(key, Value::BoolValue(value))
}

pub(crate) fn any_text(value: &str) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(bounded(value).to_owned())) }
}

fn with(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// The text, or as much of it as fits.
pub(crate) fn bounded(text: &str) -> &str {
    let end = text.floor_char_boundary(TEXT_MAX);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_end_between_characters() {
        let long = format!("a{}", "ä".repeat(TEXT_MAX));
        assert_eq!(bounded(&long).len(), TEXT_MAX - 1);
        assert_eq!(bounded("short"), "short");
    }

    #[test]
    fn large_integers_stay_positive() {
        assert_eq!(integer("a", u64::MAX).value.unwrap().value, Some(Value::IntValue(i64::MAX)));
    }
}
