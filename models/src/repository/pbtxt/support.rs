//! What Tessera does with each field of Triton's `ModelConfig`. docs/triton.md shows this table.

use prost_reflect::{DynamicMessage, Value};

/// How a field is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Support {
    /// It means what it means in Triton.
    Honored,
    /// It is accepted and changes nothing, because Tessera decides or does the same in another way. Loading logs it.
    Ignored,
    /// The model does not load if the field is set to anything but its default. With `repository.strict = false` the
    /// field is ignored with a warning, if answers are right without it.
    Refused {
        /// Whether answers are right without it.
        needed: bool,
    },
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldSupport {
    /// Path of the field without indices. It stands for all fields below it that have no row.
    pub path: &'static str,
    /// How it is treated.
    pub support: Support,
    /// Honored: what it does here. Ignored: why. Refused: what to do.
    pub note: &'static str,
}

const fn honored(path: &'static str, note: &'static str) -> FieldSupport {
    FieldSupport { path, support: Support::Honored, note }
}

const fn ignored(path: &'static str, note: &'static str) -> FieldSupport {
    FieldSupport { path, support: Support::Ignored, note }
}

/// Answers would be wrong without it.
const fn refused(path: &'static str, note: &'static str) -> FieldSupport {
    FieldSupport { path, support: Support::Refused { needed: true }, note }
}

/// Answers are right without it.
const fn missing(path: &'static str, note: &'static str) -> FieldSupport {
    FieldSupport { path, support: Support::Refused { needed: false }, note }
}

const TENSORRT: &str = "only TensorRT engines have it; export the model to ONNX";

/// Every field of `ModelConfig`, in the order of the schema.
pub(super) const FIELDS: &[FieldSupport] = &[
    honored("name", "must be the name of the folder, or empty"),
    honored("platform", "`onnxruntime_onnx`, `tract_onnx` and `ensemble`"),
    honored(
        "backend",
        "`onnxruntime` runs on ONNX Runtime where its library is found, otherwise on tract; or `python`, `tract`, `synthetic`",
    ),
    ignored("runtime", "engines are part of the server"),
    honored("version_policy", "`latest`, `all` and `specific`"),
    honored("max_batch_size", "0: requests have no batch dimension; absent: batches as the graph allows"),
    honored("input", "checked against the graph; may be left out"),
    ignored("input.format", "describes the dimensions and changes no tensor"),
    refused("input.is_shape_tensor", TENSORRT),
    honored(
        "input.allow_ragged_batch",
        "needs `batching.padding` in `[models.NAME]` (below); without it, the model is refused",
    ),
    refused("input.is_non_linear_format_io", TENSORRT),
    honored("output", "checked against the graph; may be left out"),
    refused("output.is_shape_tensor", TENSORRT),
    refused("output.is_non_linear_format_io", TENSORRT),
    refused("batch_input", "computed inputs of ragged batches do not exist here; the client must send them"),
    refused("batch_output", "outputs are scattered by rows"),
    honored("optimization.graph", "level -1, 0, 1 or 2, on ONNX Runtime"),
    ignored("optimization.priority", "objectives and classes decide which model goes first"),
    ignored("optimization.cuda", "CUDA graphs and streams do not change answers; the engine decides"),
    honored(
        "optimization.execution_accelerators",
        "`openvino` on the CPU and `cuda` on GPUs, if the ONNX Runtime library has them; others are refused if strict",
    ),
    ignored("optimization.input_pinned_memory", "buffers are pinned where a GPU is used"),
    ignored("optimization.output_pinned_memory", "buffers are pinned where a GPU is used"),
    ignored("optimization.gather_kernel_buffer_threshold", "rows are gathered on the lane"),
    ignored("optimization.eager_batching", "rows are gathered as soon as the batch is formed"),
    honored(
        "dynamic_batching",
        "without an objective, preferred sizes and queue delay select the policy `triton`; with one they are hints",
    ),
    ignored(
        "dynamic_batching.preserve_ordering",
        "each response belongs to its own request; a stream keeps the order of each model",
    ),
    honored(
        "dynamic_batching.priority_levels",
        "at most 64; a request whose `priority` is above them gets `default_priority_level`",
    ),
    honored(
        "dynamic_batching.default_queue_policy",
        "a timeout is the deadline of a request; with DELAY, a request that cannot meet it is served after the others of its level",
    ),
    honored("dynamic_batching.priority_queue_policy", "replaces `default_queue_policy` for its level"),
    honored(
        "sequence_batching",
        "requests of a sequence run in order and never two at a time; the server keeps `state` tensors and sets control inputs",
    ),
    ignored(
        "sequence_batching.direct",
        "rows without a request are not run, so a sequence needs no fixed row; it limits the sequences to the rows of a batch",
    ),
    ignored("sequence_batching.oldest.preserve_ordering", "each response belongs to its own request"),
    honored(
        "sequence_batching.state.initial_state.data_file",
        "read from the folder `initial_state` of the model; not for configurations that a load brings",
    ),
    ignored("sequence_batching.state.use_same_buffer_for_input_output", "buffers do not change answers"),
    ignored("sequence_batching.state.use_growable_memory", "buffers do not change answers"),
    refused("sequence_batching.iterative_sequence", "models give one response for each request"),
    honored(
        "ensemble_scheduling",
        "a step starts as soon as its tensors are there; the objective is one for all steps",
    ),
    refused("ensemble_scheduling.step.model_namespace", "give each model a name of its own"),
    ignored(
        "ensemble_scheduling.max_inflight_requests",
        "a step that cannot meet the deadline of its request is dropped, so steps do not pile up",
    ),
    honored("instance_group", "the sum of `count` is the most lanes that run the model"),
    ignored("instance_group.name", "lanes have numbers"),
    ignored("instance_group.kind", "placement decides which devices run a model"),
    honored(
        "instance_group.rate_limiter",
        "the same in all groups; resources count for the whole server, also those that are not `global`; see `[rate_limit]`",
    ),
    ignored("instance_group.gpus", "placement decides which devices run a model"),
    refused("instance_group.secondary_devices", TENSORRT),
    refused("instance_group.profile", TENSORRT),
    refused("instance_group.passive", "remove the group"),
    ignored("instance_group.host_policy", "lanes are pinned to cores"),
    honored("default_model_filename", "a file name without folders"),
    refused("cc_model_filenames", "use `default_model_filename`: one file serves all devices"),
    honored("metric_tags", "labels of the model's metrics, with `_` in front as in Triton; at most 16"),
    honored(
        "parameters",
        "a Python model gets all in `initialize`; of others, those of Triton's onnxruntime backend (table below) count. All are kept for `GET /v2/models/NAME/config`",
    ),
    honored(
        "model_warmup",
        "runs before the model is ready; `input_data_file` is read from the folder `warmup` of the model",
    ),
    refused("model_operations", "custom operators are not loaded; export the model without them"),
    honored(
        "model_transaction_policy.decoupled",
        "Python models only; other engines give one response for each request",
    ),
    refused("model_repository_agents", "prepare the files before the server reads them"),
    honored("response_cache.enable", "answers are kept up to `cache.max_bytes` (64 MiB unless set)"),
    missing("model_metrics", "remove it: histograms have fixed buckets"),
];

/// [`FIELDS`] as a Markdown table.
pub fn fields_table() -> String {
    let mut table = "| field | Tessera | |\n|---|---|---|\n".to_owned();
    for FieldSupport { path, support, note } in FIELDS {
        let word = match support {
            Support::Honored => "honored",
            Support::Ignored => "no effect",
            Support::Refused { needed: true } => "refused",
            Support::Refused { needed: false } => "refused if strict",
        };
        table.push_str(&format!("| `{path}` | {word} | {note} |\n"));
    }
    table
}

/// The row of a field, or of the nearest field around it.
pub(super) fn row(path: &str) -> Option<&'static FieldSupport> {
    let mut path = path;
    loop {
        if let Some(row) = FIELDS.iter().find(|row| row.path == path) {
            return Some(row);
        }
        path = path.rsplit_once('.')?.0;
    }
}

/// A field that is set and not honored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unsupported {
    /// Path with indices.
    pub path: String,
    pub row: &'static FieldSupport,
}

/// Every field of a message that is set and not honored, in the order of the schema.
pub(super) fn unsupported(message: &DynamicMessage) -> Vec<Unsupported> {
    let mut found = Vec::new();
    collect(message, ("", ""), &mut found);
    found
}

fn collect(message: &DynamicMessage, (path, plain): (&str, &str), found: &mut Vec<Unsupported>) {
    let below = |prefix: &str, name: &str| match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}.{name}"),
    };
    for (field, value) in message.fields() {
        let (path, plain) = (below(path, field.name()), below(plain, field.name()));
        let row = row(&plain);
        if let Some(row) = row.filter(|row| row.support != Support::Honored) {
            // An empty message of a field that is needed still asks for it, as `sequence_batching { }` does.
            if asks(value) || (row.path == plain && row.support == (Support::Refused { needed: true })) {
                found.push(Unsupported { path, row });
            }
            continue;
        }
        match value {
            Value::Message(inner) => collect(inner, (&path, &plain), found),
            Value::List(list) => {
                for (index, inner) in list.iter().enumerate() {
                    if let Value::Message(inner) = inner {
                        collect(inner, (&format!("{path}[{index}]"), &plain), found);
                    }
                }
            }
            Value::Map(map) => {
                map.values()
                    .filter_map(Value::as_message)
                    .for_each(|inner| collect(inner, (&path, &plain), found));
            }
            _ => {}
        }
    }
}

/// Whether a value sets anything.
fn asks(value: &Value) -> bool {
    match value {
        Value::Message(inner) => inner.fields().any(|(_, value)| asks(value)),
        Value::List(list) => !list.is_empty(),
        Value::Map(map) => !map.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::{FieldDescriptor, MessageDescriptor};

    use super::*;

    /// All paths below a message that carry values: scalars, and messages without fields.
    fn leaves(message: &MessageDescriptor) -> Vec<String> {
        fn walk(message: &MessageDescriptor, prefix: &str, leaves: &mut Vec<String>) {
            for field in message.fields() {
                let path = if prefix.is_empty() {
                    field.name().to_owned()
                } else {
                    format!("{prefix}.{}", field.name())
                };
                match value_message(&field) {
                    Some(inner) if inner.fields().len() > 0 => walk(&inner, &path, leaves),
                    _ => leaves.push(path),
                }
            }
        }
        let mut leaves = Vec::new();
        walk(message, "", &mut leaves);
        leaves
    }

    /// The message that a field holds; of a map, that of its values.
    fn value_message(field: &FieldDescriptor) -> Option<MessageDescriptor> {
        let message = field.kind().as_message().cloned()?;
        if !message.is_map_entry() {
            return Some(message);
        }
        message.map_entry_value_field().kind().as_message().cloned()
    }

    #[test]
    fn the_page_shows_the_table() {
        let page = include_str!("../../../../docs/triton.md");
        let command = "run `cargo run --release -p models --example triton_fields` and put the result into docs/triton.md";
        assert!(page.contains(&fields_table()), "{command}");
    }

    #[test]
    fn every_field_of_the_schema_has_a_row_and_every_row_is_a_field() {
        let leaves = leaves(&super::super::descriptor().unwrap());
        assert!(leaves.len() > 120, "{}", leaves.len());
        for leaf in &leaves {
            assert!(row(leaf).is_some(), "`{leaf}` has no row");
        }
        for row in FIELDS {
            let below = |leaf: &&String| {
                leaf.strip_prefix(row.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            assert!(leaves.iter().any(|leaf| below(&leaf)), "`{}` is not in the schema", row.path);
            assert!(!row.note.is_empty() && !row.note.ends_with('.'), "{}", row.path);
        }
        let mut paths: Vec<_> = FIELDS.iter().map(|row| row.path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), FIELDS.len(), "a field has two rows");
    }
}
