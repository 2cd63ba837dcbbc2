//! Compiles `proto/` without `protoc`, and makes the messages that REST also returns (model configuration,
//! statistics and shared-memory regions) serialise as protobuf JSON the way Triton prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// Messages that are printed as JSON, with all that they contain.
const JSON_ROOTS: [&str; 3] = [
    ".inference.ModelConfig",
    ".inference.ModelStatisticsResponse",
    ".inference.SystemSharedMemoryStatusResponse",
];

#[expect(clippy::disallowed_methods, reason = "a build script has its inputs and outputs in files")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut descriptors = protox::compile(["proto/grpc_service.proto"], ["proto"])?;
    let mut config = prost_build::Config::new();
    config.bytes(["."]).btree_map(["."]);
    derive_json(&descriptors, &mut config)?;
    config.compile_fds(descriptors.clone())?;

    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    let out_dir = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out_dir.join("inference.fds"), descriptors.encode_to_vec())?;
    Ok(())
}

fn derive_json(descriptors: &FileDescriptorSet, config: &mut prost_build::Config) -> Result<(), String> {
    let mut messages = BTreeMap::new();
    for file in &descriptors.file {
        for message in &file.message_type {
            collect(&format!(".{}", file.package()), message, &mut messages);
        }
    }
    let mut pending: Vec<String> = JSON_ROOTS.map(String::from).to_vec();
    let mut seen = BTreeSet::new();
    while let Some(path) = pending.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let message = messages.get(&path).ok_or_else(|| format!("no message {path}"))?;
        pending.extend(
            message
                .field
                .iter()
                .filter(|field| field.r#type() == Type::Message)
                .map(|field| field.type_name().to_owned()),
        );
        if !message.options.as_ref().is_some_and(|options| options.map_entry()) {
            // Without the leading dot prost-build takes a path as it is, not as a prefix of others.
            derive_message(path.trim_start_matches('.'), message, config);
        }
    }
    Ok(())
}

fn collect<'a>(
    parent: &str,
    message: &'a DescriptorProto,
    messages: &mut BTreeMap<String, &'a DescriptorProto>,
) {
    let path = format!("{parent}.{}", message.name());
    for nested in &message.nested_type {
        collect(&path, nested, messages);
    }
    messages.insert(path, message);
}

fn derive_message(path: &str, message: &DescriptorProto, config: &mut prost_build::Config) {
    config.message_attribute(path, "#[derive(::serde::Serialize)]");
    for choice in &message.oneof_decl {
        let choice_path = format!("{path}.{}", choice.name());
        config.field_attribute(&choice_path, "#[serde(flatten)]");
        config.type_attribute(
            &choice_path,
            "#[derive(::serde::Serialize)] #[serde(rename_all = \"snake_case\")]",
        );
    }
    for field in message.field.iter().filter(|field| field.oneof_index.is_none()) {
        if let Some(attribute) = json_attribute(field) {
            config.field_attribute(format!("{path}.{}", field.name()), attribute);
        }
    }
}

fn json_attribute(field: &FieldDescriptorProto) -> Option<String> {
    match (field.r#type(), field.label()) {
        (Type::Message, Label::Optional) => {
            Some("#[serde(skip_serializing_if = \"Option::is_none\")]".to_owned())
        }
        (Type::Enum, _) => {
            let rust_path = rust_path(field.type_name());
            Some(format!(
                "#[serde(serialize_with = \"crate::proto::enum_name::<crate::proto::{rust_path}, _>\")]"
            ))
        }
        _ => None,
    }
}

/// `.inference.ModelInput.Format` is `model_input::Format` in Rust.
fn rust_path(type_name: &str) -> String {
    let names: Vec<&str> = type_name.split('.').skip(2).collect();
    let last = names.len().saturating_sub(1);
    let parts = names
        .iter()
        .enumerate()
        .map(|(depth, name)| if depth == last { (*name).to_owned() } else { snake(name) });
    parts.collect::<Vec<_>>().join("::")
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
