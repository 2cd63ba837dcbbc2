//! A configuration as JSON, as clients send it with a load.

use prost_reflect::{DynamicMessage, ReflectMessage as _};

use super::{Pbtxt, descriptor};
use crate::{ConfigError, ModelName, Problem};

/// Where the JSON came from, in messages.
const FIELD: &str = "parameters.config";

impl Pbtxt {
    /// Parses and checks a `ModelConfig` in protobuf's JSON, as [`Pbtxt::parse`] does with text.
    pub fn parse_json(model: &ModelName, json: &str, strict: bool) -> Result<Self, ConfigError> {
        let wrong = |reason: String| ConfigError::one(model, FIELD.to_owned(), reason);
        let descriptor =
            descriptor().ok_or_else(|| wrong("the program lacks the schema of it".to_owned()))?;
        let mut reader = serde_json::Deserializer::from_str(json);
        let message = DynamicMessage::deserialize(descriptor, &mut reader)
            .and_then(|message| reader.end().map(|()| message))
            .map_err(|error| wrong(format!("is not the JSON of a ModelConfig: {error}")))?;
        let mut text = message.to_text_format();
        // Text leaves out what has its default. For this field, its default and its absence differ.
        let batch = message.descriptor().get_field_by_name("max_batch_size");
        let sets_batch = || {
            let members: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(json).ok();
            members.is_some_and(|all| all.contains_key("max_batch_size") || all.contains_key("maxBatchSize"))
        };
        if batch.is_some_and(|batch| !message.has_field(&batch)) && sets_batch() {
            text.push_str(" max_batch_size: 0");
        }
        Self::parse(model, &text, strict).map_err(|error| ConfigError {
            problems: error.problems.into_iter().map(located).collect(),
            ..error
        })
    }
}

/// The problem at its field of the JSON. Positions are those of a text that the client never saw.
fn located(problem: Problem) -> Problem {
    let field = match problem.field.split_once(": ") {
        Some((_, path)) => format!("{FIELD}: {path}"),
        None => FIELD.to_owned(),
    };
    Problem { field, ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Pbtxt, String> {
        Pbtxt::parse_json(&ModelName::new("m").unwrap(), json, true).map_err(|error| error.to_string())
    }

    #[test]
    fn json_means_what_text_means() {
        let json = r#"{"backend": "onnxruntime", "max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [4],
            "max_queue_delay_microseconds": "100"}, "parameters": {"a\"b": {"string_value": "x\ny"}},
            "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 3]}]}"#;
        let text = r#"backend: "onnxruntime" max_batch_size: 8 dynamic_batching { preferred_batch_size: 4
            max_queue_delay_microseconds: 100 } parameters { key: "a\"b" value { string_value: "x\ny" } }
            input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] }"#;
        let from_text = Pbtxt::parse(&ModelName::new("m").unwrap(), text, true).unwrap();
        assert_eq!(
            Pbtxt { ignored: Vec::new(), ..parse(json).unwrap() },
            Pbtxt { ignored: Vec::new(), ..from_text }
        );
        assert_eq!(parse("{}").unwrap().max_batch, None);
        assert_eq!(parse(r#"{"max_batch_size": 0}"#).unwrap().max_batch, Some(0));
    }

    #[test]
    fn problems_name_the_field_of_the_json() {
        let message = parse(r#"{"max_batch_size": -1}"#).unwrap_err();
        assert_eq!(message, "model `m`: parameters.config: max_batch_size: is -1: expected 0 or more");
        for json in ["{bad", r#"{"nope": 1}"#, "[]", "{} {}"] {
            let message = parse(json).unwrap_err();
            assert!(message.starts_with("model `m`: parameters.config: is not the JSON of"), "{message}");
        }
    }
}
