//! The configuration of a Python model as JSON, in the form in which Triton passes it to `initialize`, and what it says
//! about inputs and outputs.

use oip::Datatype;
use oip::proto::ModelConfig;
use prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value as Field,
};
use serde_json::{Map, Value, json};

use crate::{Dim, Signature, TensorSpec};

/// The configuration as JSON: every scalar field is there, messages only if they are set. What the file leaves out has the
/// values that Triton fills in.
pub(crate) fn to_json(
    descriptor: MessageDescriptor,
    source: &ModelConfig,
    model: &str,
    file: &str,
) -> Result<String, String> {
    let message = DynamicMessage::decode(descriptor, source.encode_to_vec().as_slice())
        .map_err(|error| format!("cannot be read: {error}"))?;
    let mut config = object(&message);
    let text = |value: &str| Value::String(value.to_owned());
    config.insert("name".to_owned(), text(model));
    config.insert("backend".to_owned(), text("python"));
    config.insert("default_model_filename".to_owned(), text(file));
    config.entry("version_policy").or_insert_with(|| json!({"latest": {"num_versions": 1}}));
    let optimization = config.entry("optimization").or_insert_with(|| {
        json!({"priority": "PRIORITY_DEFAULT", "gather_kernel_buffer_threshold": 0, "eager_batching": false})
    });
    if let Value::Object(optimization) = optimization {
        for field in ["input_pinned_memory", "output_pinned_memory"] {
            optimization.entry(field).or_insert_with(|| json!({"enable": true}));
        }
    }
    let groups = config.entry("instance_group").or_insert_with(|| json!([]));
    if let Value::Array(groups) = groups {
        if groups.is_empty() {
            groups.push(
                json!({"name": "", "kind": "KIND_CPU", "count": 1, "gpus": [], "secondary_devices": [],
                               "profile": [], "passive": false, "host_policy": ""}),
            );
        }
        for (index, group) in groups.iter_mut().enumerate() {
            complete_group(group, model, index);
        }
    }
    Ok(Value::Object(config).to_string())
}

fn complete_group(group: &mut Value, model: &str, index: usize) {
    let Value::Object(group) = group else { return };
    let unset = |value: Option<&Value>, default: &Value| value.is_none_or(|value| value == default);
    if unset(group.get("name"), &json!("")) {
        group.insert("name".to_owned(), Value::String(format!("{model}_{index}")));
    }
    if unset(group.get("kind"), &json!("KIND_AUTO")) {
        group.insert("kind".to_owned(), json!("KIND_CPU"));
    }
    if unset(group.get("count"), &json!(0)) {
        group.insert("count".to_owned(), json!(1));
    }
}

fn object(message: &DynamicMessage) -> Map<String, Value> {
    let mut object = Map::new();
    for field in message.descriptor().fields() {
        let optional = field.supports_presence() || field.containing_oneof().is_some();
        if optional && !message.has_field(&field) {
            continue;
        }
        object.insert(field.name().to_owned(), value(&message.get_field(&field), &field));
    }
    object
}

fn value(field: &Field, descriptor: &FieldDescriptor) -> Value {
    match field {
        Field::Bool(value) => json!(value),
        Field::I32(value) => json!(value),
        Field::I64(value) => json!(value),
        Field::U32(value) => json!(value),
        Field::U64(value) => json!(value),
        Field::F32(value) => json!(value),
        Field::F64(value) => json!(value),
        Field::String(value) => json!(value),
        Field::Bytes(value) => json!(String::from_utf8_lossy(value)),
        Field::EnumNumber(number) => match descriptor.kind() {
            Kind::Enum(of) => of.get_value(*number).map_or(json!(number), |value| json!(value.name())),
            _ => json!(number),
        },
        Field::Message(message) => Value::Object(object(message)),
        Field::List(list) => Value::Array(list.iter().map(|item| value(item, descriptor)).collect()),
        Field::Map(map) => {
            let Kind::Message(entry) = descriptor.kind() else { return Value::Null };
            let of = entry.map_entry_value_field();
            let mut entries: Vec<_> = map.iter().map(|(key, item)| (name(key), value(item, &of))).collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(entries.into_iter().collect())
        }
    }
}

fn name(key: &MapKey) -> String {
    match key {
        MapKey::String(key) => key.clone(),
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
    }
}

/// Inputs, outputs and largest batch that a configuration declares.
///
/// # Errors
/// What is missing or wrong.
pub(super) fn signature(config: &Value) -> Result<Signature, String> {
    let max_batch = config.get("max_batch_size").and_then(Value::as_i64).unwrap_or(0);
    let max_batch =
        u32::try_from(max_batch).map_err(|_| format!("max_batch_size is {max_batch}: expected 0 or more"))?;
    let specs = |what: &str| -> Result<Vec<TensorSpec>, String> {
        let list = config.get(what).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if list.is_empty() {
            return Err(format!(
                "`{what}`: expected at least one in config.pbtxt or from auto_complete_config"
            ));
        }
        list.iter()
            .map(|tensor| spec(tensor, max_batch > 0).map_err(|error| format!("`{what}`: {error}")))
            .collect()
    };
    let mut inputs = specs("input")?;
    let controls = config.pointer("/sequence_batching/control_input").and_then(Value::as_array);
    for control in controls.into_iter().flatten() {
        inputs.push(control_spec(control, max_batch > 0)?);
    }
    Ok(Signature { inputs, outputs: specs("output")?, max_batch })
}

/// An input that the server sets in the requests of a sequence.
fn control_spec(input: &Value, batched: bool) -> Result<TensorSpec, String> {
    let control = input.pointer("/control/0").unwrap_or(&Value::Null);
    let has = |field: &str| control.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let word = if has("int32_false_true") {
        "TYPE_INT32"
    } else if has("fp32_false_true") {
        "TYPE_FP32"
    } else if has("bool_false_true") {
        "TYPE_BOOL"
    } else {
        control.get("data_type").and_then(Value::as_str).unwrap_or_default()
    };
    let name = input.get("name").cloned().unwrap_or_default();
    let tensor = json!({"name": name, "data_type": word, "dims": [1]});
    spec(&tensor, batched).map_err(|error| format!("`sequence_batching.control_input`: {error}"))
}

/// Whether the requests of the model form sequences.
pub(super) fn takes_sequences(config: &Value) -> bool {
    config.get("sequence_batching").is_some_and(|batching| !batching.is_null())
}

fn spec(tensor: &Value, batched: bool) -> Result<TensorSpec, String> {
    let name = tensor.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.ok_or("a tensor has no name")?;
    let word = tensor.get("data_type").and_then(Value::as_str).unwrap_or_default();
    let datatype = match word.strip_prefix("TYPE_").unwrap_or(word) {
        "STRING" => Datatype::Bytes,
        word => word
            .parse()
            .map_err(|_| format!("`{name}`: data_type is `{word}`: expected one such as TYPE_FP32"))?,
    };
    let reshape = tensor.get("reshape").and_then(|reshape| reshape.get("shape"));
    let dims = reshape.or_else(|| tensor.get("dims")).and_then(Value::as_array);
    let dims = dims.ok_or_else(|| format!("`{name}`: dims are missing"))?;
    let dim = |dim: &Value| match dim.as_i64() {
        Some(-1) => Ok(Dim::Free),
        Some(extent) if extent >= 1 => Ok(Dim::Fixed(extent.unsigned_abs())),
        _ => Err(format!("`{name}`: dims have {dim}: expected -1 or 1 and more")),
    };
    let batch = batched.then_some(Ok(Dim::Free));
    let dims = batch.into_iter().chain(dims.iter().map(dim)).collect::<Result<_, _>>()?;
    let optional = tensor.get("optional").and_then(Value::as_bool).unwrap_or(false);
    Ok(TensorSpec { name: name.to_owned(), datatype, dims, optional })
}

/// Whether the configuration makes the model decoupled.
pub(super) fn decoupled(config: &Value) -> bool {
    config.pointer("/model_transaction_policy/decoupled").and_then(Value::as_bool).unwrap_or(false)
}

/// A parameter of the configuration.
pub(super) fn parameter<'a>(config: &'a Value, name: &str) -> Option<&'a str> {
    config.get("parameters")?.get(name)?.get("string_value")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(text: &str) -> Result<Signature, String> {
        signature(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn a_configuration_gives_the_signature() {
        let text = r#"{"max_batch_size": 4,
            "input": [{"name": "a", "data_type": "TYPE_STRING", "dims": [1], "optional": true}],
            "output": [{"name": "b", "data_type": "TYPE_FP32", "dims": [2, 3], "reshape": {"shape": [-1]}}]}"#;
        let signature = declared(text).unwrap();
        assert_eq!(signature.max_batch, 4);
        let dims = |spec: &TensorSpec| spec.dims.iter().map(|dim| dim.to_wire()).collect::<Vec<_>>();
        let (input, output) = (&signature.inputs[0], &signature.outputs[0]);
        assert_eq!((input.datatype, dims(input), input.optional), (Datatype::Bytes, vec![-1, 1], true));
        assert_eq!((output.datatype, dims(output)), (Datatype::Fp32, vec![-1, -1]));
    }

    #[test]
    fn control_inputs_of_sequences_are_inputs_of_the_model() {
        let text = r#"{"max_batch_size": 4,
            "input": [{"name": "a", "data_type": "TYPE_FP32", "dims": [2]}],
            "output": [{"name": "b", "data_type": "TYPE_FP32", "dims": [2]}],
            "sequence_batching": {"control_input": [
                {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [],
                    "bool_false_true": [false, true], "data_type": "TYPE_INVALID"}]},
                {"name": "ID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"}]}]}}"#;
        let inputs = declared(text).unwrap().inputs;
        let given = |at: usize| (inputs[at].name.as_str(), inputs[at].datatype, inputs[at].dims.len());
        assert_eq!((given(1), given(2)), (("START", Datatype::Bool, 2), ("ID", Datatype::Uint64, 2)));
    }

    #[test]
    fn mistakes_name_the_tensor() {
        for (text, part) in [
            (r#"{}"#, "`input`: expected at least one"),
            (r#"{"input": [{}]}"#, "a tensor has no name"),
            (r#"{"input": [{"name": "a", "data_type": "TYPE_X", "dims": []}]}"#, "`a`: data_type is `X`"),
            (r#"{"input": [{"name": "a", "data_type": "TYPE_INT8", "dims": [0]}]}"#, "`a`: dims have 0"),
            (r#"{"max_batch_size": -1}"#, "max_batch_size is -1"),
        ] {
            let said = declared(text).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }
}
