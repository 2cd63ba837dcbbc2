//! The text of a `config.pbtxt` and the fields it may set.

use prost_reflect::{DynamicMessage, Value};

/// Paths that may be set. A path stands for itself alone, not for what is below it.
const SUPPORTED: &[&str] = &[
    "name",
    "platform",
    "backend",
    "max_batch_size",
    "default_model_filename",
    "parameters",
    "parameters.string_value",
    "input",
    "input.name",
    "input.data_type",
    "input.dims",
    "input.reshape",
    "input.reshape.shape",
    "input.optional",
    "output",
    "output.name",
    "output.data_type",
    "output.dims",
    "output.reshape",
    "output.reshape.shape",
    "output.label_filename",
    "version_policy",
    "version_policy.latest",
    "version_policy.latest.num_versions",
    "version_policy.all",
    "version_policy.specific",
    "version_policy.specific.versions",
    "instance_group",
    "instance_group.name",
    "instance_group.count",
    "instance_group.kind",
    "dynamic_batching",
    "dynamic_batching.preferred_batch_size",
    "dynamic_batching.max_queue_delay_microseconds",
    "dynamic_batching.priority_levels",
    "dynamic_batching.default_priority_level",
    "dynamic_batching.default_queue_policy",
    "dynamic_batching.default_queue_policy.timeout_action",
    "dynamic_batching.default_queue_policy.default_timeout_microseconds",
    "dynamic_batching.default_queue_policy.allow_timeout_override",
    "dynamic_batching.default_queue_policy.max_queue_size",
    "model_warmup",
    "model_warmup.name",
    "model_warmup.batch_size",
    "model_warmup.count",
    "model_warmup.inputs",
    "model_warmup.inputs.data_type",
    "model_warmup.inputs.dims",
    "model_warmup.inputs.zero_data",
    "model_warmup.inputs.random_data",
];

/// The path of the first field that is set and not supported.
pub(super) fn unsupported(message: &DynamicMessage, prefix: &str) -> Option<String> {
    message.fields().find_map(|(field, value)| {
        let path =
            if prefix.is_empty() { field.name().to_owned() } else { format!("{prefix}.{}", field.name()) };
        if !SUPPORTED.contains(&path.as_str()) {
            return Some(path);
        }
        match value {
            Value::Message(inner) => unsupported(inner, &path),
            Value::List(list) => {
                list.iter().filter_map(Value::as_message).find_map(|m| unsupported(m, &path))
            }
            Value::Map(map) => map.values().filter_map(Value::as_message).find_map(|m| unsupported(m, &path)),
            _ => None,
        }
    })
}

/// The text with a colon before every list of messages. The format allows `input [ { ... } ]`, and every example
/// of Triton is written so, but the parser knows only `input: [ { ... } ]`.
pub(super) fn with_colons(text: &str) -> String {
    let mut with = String::with_capacity(text.len() + 16);
    let (mut quote, mut comment, mut escaped, mut after_name) = (None, false, false, false);
    for c in text.chars() {
        if comment {
            comment = c != '\n';
        } else if let Some(end) = quote {
            quote = (escaped || c != end).then_some(end);
            escaped = c == '\\' && !escaped;
        } else if c == '#' {
            comment = true;
        } else if c == '"' || c == '\'' {
            (quote, after_name) = (Some(c), false);
        } else {
            if c == '[' && after_name {
                with.push(':');
            }
            after_name = c.is_ascii_alphanumeric() || c == '_' || (after_name && c.is_whitespace());
        }
        with.push(c);
    }
    with
}

/// Whether a text names a field outside comments and quotes. Protobuf cannot tell `max_batch_size: 0` from its
/// absence, but to a person they differ: never batch, and batch as the model allows.
pub(super) fn mentions(text: &str, field: &str) -> bool {
    text.lines().any(|line| {
        let code = line.split('#').next().unwrap_or_default();
        let unquoted: String = code.split('"').step_by(2).collect();
        unquoted.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == field)
    })
}
