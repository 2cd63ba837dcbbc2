//! Triton's `config.pbtxt`, as far as it is supported.
//!
//! A field that is not supported is an error that names it: a model that asks for something and silently does
//! not get it is worse than one that does not load.

mod text;
mod warm_up;

use std::num::NonZeroU32;
use std::path::{Component, Path};
use std::sync::LazyLock;
use std::time::Duration;

use oip::Datatype;
use oip::proto::model_config::SchedulingChoice;
use oip::proto::model_version_policy::PolicyChoice;
use oip::proto::{self, ModelConfig, ModelTensorReshape};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::reshape::agree;
use crate::{ConfigError, EngineChoice, ModelName, Version, VersionPolicy};
use text::{mentions, unsupported, with_colons};
use warm_up::warm_ups;
pub use warm_up::{WarmUp, WarmUpInput, WarmUpValues};

/// Bound on `priority_levels`.
const CLASSES_MAX: u64 = 64;

/// What a `config.pbtxt` asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Pbtxt {
    /// Engine, from `platform` or `backend`; `None` when it names none.
    pub engine: Option<EngineChoice>,
    /// `max_batch_size`, when the file sets it; 0: no batch dimension.
    pub max_batch: Option<u32>,
    /// Declared inputs; empty: whatever the graph has.
    pub inputs: Vec<TensorDeclaration>,
    /// Declared outputs; empty: whatever the graph has.
    pub outputs: Vec<TensorDeclaration>,
    /// Which versions to serve.
    pub versions: Option<VersionPolicy>,
    /// Whether `dynamic_batching` is there.
    pub dynamic_batching: bool,
    /// Batch sizes to aim for, rising.
    pub preferred: Vec<NonZeroU32>,
    /// Longest wait for a batch to fill.
    pub max_delay: Option<Duration>,
    /// Number of priority classes.
    pub classes: Option<NonZeroU32>,
    /// Class of requests without a priority.
    pub default_class: Option<NonZeroU32>,
    /// Bound on queued requests.
    pub queue_limit: Option<NonZeroU32>,
    /// Time after which a request that brings no timeout is refused.
    pub default_timeout: Option<Duration>,
    /// Whether requests may bring their own timeout.
    pub timeout_override: bool,
    /// Number of lanes to run on, from `instance_group`.
    pub instances: Option<NonZeroU32>,
    /// Main file of a version, when it has another name than `model.onnx`.
    pub model_filename: Option<String>,
    /// Requests to run before the model is ready.
    pub warm_ups: Vec<WarmUp>,
    /// The file as protobuf, for the model configuration extension; `parameters` are kept only here.
    pub source: ModelConfig,
}

/// An input or output as the file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorDeclaration {
    /// Name in the graph.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// Dimensions, without the batch when `max_batch_size` is above 0; -1 is free.
    pub dims: Vec<i64>,
    /// Dimensions in the graph, where they differ from `dims`; they hold the same elements.
    pub reshape: Option<Vec<i64>>,
    /// File with a label for each index of this output.
    pub label_filename: Option<String>,
}

static CONFIG: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(oip::proto::FILE_DESCRIPTOR_SET).ok()?;
    pool.get_message_by_name("inference.ModelConfig")
});

impl Pbtxt {
    /// Parses and checks the text of a `config.pbtxt`.
    pub fn parse(model: &ModelName, text: &str) -> Result<Self, ConfigError> {
        let refuse = |path: &str, reason: String| ConfigError {
            model: model.to_string(),
            field: if path.is_empty() { "config.pbtxt".to_owned() } else { format!("config.pbtxt: {path}") },
            reason,
        };
        let descriptor = CONFIG
            .clone()
            .ok_or_else(|| refuse("", "the program lacks the schema of this file".to_owned()))?;
        let message = DynamicMessage::parse_text_format(descriptor, &with_colons(text)).map_err(|error| {
            refuse("", format!("is not a protobuf text of `inference.ModelConfig`: {error}"))
        })?;
        if let Some(path) = unsupported(&message, "") {
            return Err(refuse(&path, "is not supported".to_owned()));
        }
        let source: ModelConfig =
            message.transcode_to().map_err(|error| refuse("", format!("cannot be read: {error}")))?;
        if !source.name.is_empty() && source.name != model.as_str() {
            let reason = format!("is `{}`: expected the folder's name, or nothing", source.name);
            return Err(refuse("name", reason));
        }
        Self::from_proto(source, mentions(text, "max_batch_size"))
            .map_err(|(path, reason)| refuse(&path, reason))
    }

    fn from_proto(source: ModelConfig, has_max_batch: bool) -> Result<Self, (String, String)> {
        let field = |path: &str, reason: String| (path.to_owned(), reason);
        let max_batch = u32::try_from(source.max_batch_size).map_err(|_| {
            field("max_batch_size", format!("is {}: expected 0 or more", source.max_batch_size))
        })?;
        let dynamic = match &source.scheduling_choice {
            Some(SchedulingChoice::DynamicBatching(batching)) => Some(batching.clone()),
            Some(_) | None => None,
        };
        let dynamic_batching = dynamic.is_some();
        let batching = dynamic.unwrap_or_default();
        let queue = batching.default_queue_policy.unwrap_or_default();
        if queue.timeout_action != proto::model_queue_policy::TimeoutAction::Reject as i32 {
            let path = "dynamic_batching.default_queue_policy.timeout_action";
            return Err(field(path, "is DELAY: only REJECT is supported".to_owned()));
        }
        let timeout = queue.default_timeout_microseconds;
        Ok(Self {
            engine: engine(&source.platform, &source.backend)?,
            max_batch: has_max_batch.then_some(max_batch),
            inputs: source
                .input
                .iter()
                .map(|i| declaration("input", &i.name, i.data_type, &i.dims, i.reshape.as_ref(), ""))
                .collect::<Result<_, _>>()?,
            outputs: source
                .output
                .iter()
                .map(|o| {
                    let (reshape, labels) = (o.reshape.as_ref(), &o.label_filename);
                    declaration("output", &o.name, o.data_type, &o.dims, reshape, labels)
                })
                .collect::<Result<_, _>>()?,
            versions: versions(&source)?,
            dynamic_batching,
            preferred: preferred(&batching.preferred_batch_size)?,
            max_delay: (batching.max_queue_delay_microseconds > 0)
                .then(|| Duration::from_micros(batching.max_queue_delay_microseconds)),
            classes: class("dynamic_batching.priority_levels", batching.priority_levels)?,
            default_class: class("dynamic_batching.default_priority_level", batching.default_priority_level)?,
            queue_limit: NonZeroU32::new(queue.max_queue_size),
            default_timeout: (timeout > 0).then(|| Duration::from_micros(timeout)),
            timeout_override: timeout == 0 || queue.allow_timeout_override,
            instances: instances(&source)?,
            model_filename: filename("default_model_filename", &source.default_model_filename)?,
            warm_ups: warm_ups(&source)?,
            source,
        })
    }
}

fn engine(platform: &str, backend: &str) -> Result<Option<EngineChoice>, (String, String)> {
    let of = |field: &str, word: &str| match word {
        "" => Ok(None),
        "onnxruntime" | "onnxruntime_onnx" | "ort" => Ok(Some(EngineChoice::Named(crate::engine::ort::NAME))),
        "tract" | "tract_onnx" => Ok(Some(EngineChoice::Named(crate::engine::tract::NAME))),
        "synthetic" => Ok(Some(EngineChoice::Named(crate::engine::synthetic::NAME))),
        other => {
            let reason = format!("`{other}` is not supported: expected onnxruntime, tract or synthetic");
            Err((field.to_owned(), reason))
        }
    };
    match (of("platform", platform)?, of("backend", backend)?) {
        (Some(one), Some(other)) if one != other => {
            Err(("backend".to_owned(), format!("`{backend}` contradicts platform `{platform}`")))
        }
        // Triton's word means "whatever runs ONNX": every onnxruntime model may run on tract where there is no
        // ONNX Runtime.
        (Some(EngineChoice::Named("ort")), _) | (_, Some(EngineChoice::Named("ort"))) => {
            Ok(Some(EngineChoice::Auto))
        }
        (platform, backend) => Ok(platform.or(backend)),
    }
}

fn declaration(
    kind: &str,
    name: &str,
    data_type: i32,
    dims: &[i64],
    reshape: Option<&ModelTensorReshape>,
    labels: &str,
) -> Result<TensorDeclaration, (String, String)> {
    let path = |field: &str| format!("{kind} `{name}`: {field}");
    if name.is_empty() {
        return Err((format!("{kind}.name"), "is missing".to_owned()));
    }
    let reshape = reshape.map(|reshape| reshape.shape.clone());
    for (field, dims) in [("dims", Some(dims)), ("reshape", reshape.as_deref())] {
        if let Some(dim) = dims.and_then(|dims| dims.iter().find(|&&dim| dim < -1 || dim == 0)) {
            return Err((path(field), format!("has {dim}: expected -1 or 1 and more")));
        }
    }
    if let Some(reshape) = &reshape
        && !agree(dims, reshape)
    {
        let reason = format!("is {reshape:?}: expected a shape with as many elements as dims {dims:?}");
        return Err((path("reshape"), reason));
    }
    Ok(TensorDeclaration {
        name: name.to_owned(),
        datatype: datatype(data_type)
            .ok_or_else(|| (path("data_type"), "is missing or invalid".to_owned()))?,
        dims: dims.to_vec(),
        reshape,
        label_filename: filename(&path("label_filename"), labels)?,
    })
}

/// Protobuf calls datatypes `TYPE_FP32` and the like, and `BYTES` a string.
fn datatype(number: i32) -> Option<Datatype> {
    let name = proto::DataType::try_from(number).ok()?.as_str_name();
    match name.trim_start_matches("TYPE_") {
        "STRING" => Some(Datatype::Bytes),
        name => name.parse().ok(),
    }
}

fn versions(source: &ModelConfig) -> Result<Option<VersionPolicy>, (String, String)> {
    let Some(choice) = source.version_policy.as_ref().and_then(|policy| policy.policy_choice.as_ref()) else {
        return Ok(None);
    };
    Ok(Some(match choice {
        PolicyChoice::All(_) => VersionPolicy::All,
        PolicyChoice::Latest(latest) => {
            VersionPolicy::Latest(NonZeroU32::new(latest.num_versions).unwrap_or(NonZeroU32::MIN))
        }
        PolicyChoice::Specific(specific) => {
            let versions = specific.versions.iter().map(|&number| {
                let version = u64::try_from(number).ok().filter(|&number| number > 0).map(Version);
                let path = "version_policy.specific.versions".to_owned();
                version.ok_or_else(|| (path, format!("has {number}: expected 1 or more")))
            });
            VersionPolicy::Listed(versions.collect::<Result<_, _>>()?)
        }
    }))
}

fn preferred(sizes: &[i32]) -> Result<Vec<NonZeroU32>, (String, String)> {
    let mut checked = sizes
        .iter()
        .map(|&size| {
            let path = "dynamic_batching.preferred_batch_size".to_owned();
            let size_checked = u32::try_from(size).ok().and_then(NonZeroU32::new);
            size_checked.ok_or_else(|| (path, format!("has {size}: expected 1 or more")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    checked.sort_unstable();
    checked.dedup();
    Ok(checked)
}

fn class(path: &str, number: u64) -> Result<Option<NonZeroU32>, (String, String)> {
    if number > CLASSES_MAX {
        return Err((path.to_owned(), format!("is {number}: expected at most {CLASSES_MAX}")));
    }
    Ok(u32::try_from(number).ok().and_then(NonZeroU32::new))
}

fn instances(source: &ModelConfig) -> Result<Option<NonZeroU32>, (String, String)> {
    use oip::proto::model_instance_group::Kind;
    let mut total = 0_u32;
    for group in &source.instance_group {
        if !matches!(Kind::try_from(group.kind), Ok(Kind::Cpu | Kind::Auto)) {
            let reason = "expected KIND_CPU or KIND_AUTO".to_owned();
            return Err(("instance_group.kind".to_owned(), reason));
        }
        let count = u32::try_from(group.count).map_err(|_| {
            ("instance_group.count".to_owned(), format!("is {}: expected 1 or more", group.count))
        })?;
        total = total.saturating_add(count.max(1));
    }
    Ok(NonZeroU32::new(total))
}

/// A plain file name: a path could leave the model's folder.
fn filename(path: &str, name: &str) -> Result<Option<String>, (String, String)> {
    if name.is_empty() {
        return Ok(None);
    }
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(Some(name.to_owned())),
        _ => Err((path.to_owned(), format!("is `{name}`: expected a file name without folders"))),
    }
}

#[cfg(test)]
mod tests;
