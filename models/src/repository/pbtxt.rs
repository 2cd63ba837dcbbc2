//! Triton's `config.pbtxt`.
//!
//! The table in `support` says what each field does here. A field that cannot be honored is an error: a model that asks for something
//! and silently does not get it is worse than one that does not load.

mod engine_settings;
mod ensemble;
mod json;
mod layout;
mod problems;
mod queue_policy;
mod rate_limiter;
mod sequences;
mod support;
mod text;
mod warm_up;
mod writing;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Component, Path};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use oip::Datatype;
use oip::proto::model_config::SchedulingChoice;
use oip::proto::model_version_policy::PolicyChoice;
use oip::proto::{self, ModelConfig, ModelTensorReshape};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::engine::ort::OrtSettings;
use crate::reshape::agree;
use crate::{ConfigError, EngineChoice, Ensemble, ModelName, Version, VersionPolicy};
use engine_settings::{engine_settings, of_other_backends};
use layout::Layout;
use problems::Problems;
pub use queue_policy::QueuePolicy;
pub use rate_limiter::RateLimiter;
pub(super) use sequences::read_state_files;
pub use sequences::{ControlInput, FalseTrue, SequenceBatching, Signal, StateFile, StateTensor};
use support::Support;
pub use support::fields_table;
use text::with_colons;
pub(super) use warm_up::read_files;
use warm_up::warm_ups;
pub use warm_up::{WarmUp, WarmUpInput, WarmUpValues};
pub use writing::config_text;

/// Bound on `priority_levels`.
const CLASSES_MAX: u64 = 64;
/// Bounds on `metric_tags`: each is a label of some 20 series.
const TAGS_MAX: usize = 16;
const TAG_BYTES_MAX: usize = 128;

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
    /// How sequences of requests run, with `sequence_batching`.
    pub sequences: Option<SequenceBatching>,
    /// Number of priority classes.
    pub classes: Option<NonZeroU32>,
    /// Class of requests without a priority.
    pub default_class: Option<NonZeroU32>,
    /// Limits of queued requests.
    pub queue: QueuePolicy,
    /// Limits of the priority levels that have their own.
    pub level_queues: BTreeMap<u32, QueuePolicy>,
    /// Number of lanes to run on, from `instance_group`.
    pub instances: Option<NonZeroU32>,
    /// What each running batch holds.
    pub rate_limiter: RateLimiter,
    /// Main file of a version, when it has another name than `model.onnx`.
    pub model_filename: Option<String>,
    /// Requests to run before the model is ready.
    pub warm_ups: Vec<WarmUp>,
    /// The models that an ensemble runs.
    pub ensemble: Option<Ensemble>,
    /// Session settings for ONNX Runtime, from `optimization` and `parameters`.
    pub ort: OrtSettings,
    /// Fields that are set and have no effect, in the order of the file; then parameters.
    pub ignored: Vec<IgnoredField>,
    /// The file as protobuf, for the model configuration extension; `parameters` are kept only here.
    pub source: Arc<ModelConfig>,
}

/// A field that is set and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredField {
    /// File, line, column and path: `config.pbtxt:3:1: optimization.cuda`.
    pub field: String,
    /// Why that is right, or what is missed.
    pub reason: &'static str,
    /// Whether a strict repository refuses the model for it.
    pub is_missed: bool,
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
    /// `allow_ragged_batch`: requests of unlike shapes may share a batch.
    pub is_ragged: bool,
    /// File with a label for each index of this output.
    pub label_filename: Option<String>,
}

static CONFIG: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(oip::proto::FILE_DESCRIPTOR_SET).ok()?;
    pool.get_message_by_name("inference.ModelConfig")
});

/// The schema of the file.
fn descriptor() -> Option<MessageDescriptor> {
    CONFIG.clone()
}

impl Pbtxt {
    /// Parses and checks the text of a `config.pbtxt`. The error lists every problem with line and column.
    ///
    /// With `strict`, a field that is neither honored nor without effect is a problem. Without it, such a field is ignored
    /// if answers are right without it, and listed in [`Pbtxt::ignored`].
    pub fn parse(model: &ModelName, text: &str, strict: bool) -> Result<Self, ConfigError> {
        let Some(descriptor) = descriptor() else {
            let reason = "the program lacks the schema of this file".to_owned();
            return Err(ConfigError::one(model, "config.pbtxt".to_owned(), reason));
        };
        let layout = Layout::of(text, descriptor.clone());
        let mut problems = Problems::new(model, text, &layout);
        problems.add_unknown();
        problems.result()?;
        let (with_colons, added) = with_colons(text);
        let message = match DynamicMessage::parse_text_format(descriptor, &with_colons) {
            Ok(message) => message,
            Err(error) => {
                problems.add_syntax(&error, &added);
                return Err(problems.error());
            }
        };
        let mut ignored = Vec::new();
        for field in support::unsupported(&message) {
            let needed = match field.row.support {
                Support::Refused { needed } => needed || strict,
                Support::Ignored | Support::Honored => false,
            };
            if needed {
                problems.add(&field.path, format!("is not supported: {}", field.row.note));
            } else {
                let (field, row) = (field.path, field.row);
                let ignored_field = IgnoredField {
                    field: problems.name(&field),
                    reason: row.note,
                    is_missed: row.support != Support::Ignored,
                };
                ignored.push((layout.position(&field), ignored_field));
            }
        }
        ignored.sort_by_key(|(position, _)| *position);
        let ignored = ignored.into_iter().map(|(_, field)| field).collect();
        let source: ModelConfig = match message.transcode_to() {
            Ok(source) => source,
            Err(error) => {
                problems.add("", format!("cannot be read: {error}"));
                return Err(problems.error());
            }
        };
        if !source.name.is_empty() && source.name != model.as_str() {
            problems.add("name", format!("is `{}`: expected the folder's name, or nothing", source.name));
        }
        let file = Self::from_proto(source, (ignored, strict), &layout, &mut problems);
        problems.result()?;
        Ok(file)
    }

    fn from_proto(
        source: ModelConfig,
        (mut ignored, strict): (Vec<IgnoredField>, bool),
        layout: &Layout,
        problems: &mut Problems<'_>,
    ) -> Self {
        let decoupled = source.model_transaction_policy.as_ref().is_some_and(|policy| policy.decoupled);
        if decoupled && source.backend != crate::engine::python::NAME {
            let reason =
                "is true: expected `backend: \"python\"`, other engines give one response for each request";
            problems.add("model_transaction_policy.decoupled", reason.to_owned());
        }
        let max_batch = u32::try_from(source.max_batch_size).unwrap_or_else(|_| {
            problems.add("max_batch_size", format!("is {}: expected 0 or more", source.max_batch_size));
            0
        });
        let (dynamic, sequences) = match &source.scheduling_choice {
            Some(SchedulingChoice::DynamicBatching(batching)) => (Some(batching.clone()), None),
            Some(SchedulingChoice::SequenceBatching(batching)) => {
                let outputs: Vec<&str> = source.output.iter().map(|output| output.name.as_str()).collect();
                (sequences::as_dynamic(batching), Some(sequences::sequences(batching, &outputs, problems)))
            }
            Some(_) | None => (None, None),
        };
        let dynamic_batching = dynamic.is_some();
        let batching = dynamic.unwrap_or_default();
        let queue = batching.default_queue_policy.unwrap_or_default();
        let queue = QueuePolicy::from_proto("dynamic_batching.default_queue_policy", &queue, problems);
        check_tags(&source, problems);
        check_cache(&source, problems);
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (index, i) in source.input.iter().enumerate() {
            let path = format!("input[{index}]");
            let fields = (i.name.as_str(), i.data_type, i.dims.as_slice(), i.reshape.as_ref(), "");
            let declared = declaration(&path, fields, problems);
            inputs
                .extend(declared.map(|input| TensorDeclaration { is_ragged: i.allow_ragged_batch, ..input }));
        }
        for (index, o) in source.output.iter().enumerate() {
            let path = format!("output[{index}]");
            let fields = (
                o.name.as_str(),
                o.data_type,
                o.dims.as_slice(),
                o.reshape.as_ref(),
                o.label_filename.as_str(),
            );
            outputs.extend(declaration(&path, fields, problems));
        }
        let engine = engine(&source.platform, &source.backend, problems);
        // The parameters of other backends have other meanings.
        let (ort, without_effect) = match engine {
            None | Some(EngineChoice::Auto) => engine_settings(&source, strict, problems),
            Some(EngineChoice::Named(_)) => (OrtSettings::default(), of_other_backends(&source, problems)),
        };
        ignored.extend(without_effect);
        let ensemble = ensemble::read(problems, &source, (&inputs, &outputs, max_batch));
        Self {
            ensemble,
            engine,
            // Protobuf cannot tell `max_batch_size: 0` from its absence, but they differ: never batch, and batch as the
            // model allows.
            max_batch: layout.has("max_batch_size").then_some(max_batch),
            inputs,
            outputs,
            versions: versions(&source, problems),
            dynamic_batching,
            preferred: preferred(&batching.preferred_batch_size, problems),
            max_delay: (batching.max_queue_delay_microseconds > 0)
                .then(|| Duration::from_micros(batching.max_queue_delay_microseconds)),
            sequences,
            classes: class("dynamic_batching.priority_levels", batching.priority_levels, problems),
            default_class: class(
                "dynamic_batching.default_priority_level",
                batching.default_priority_level,
                problems,
            ),
            queue,
            level_queues: queue_policy::by_level(&batching, problems),
            instances: instances(&source, problems),
            rate_limiter: rate_limiter::rate_limiter(&source, problems),
            model_filename: filename("default_model_filename", &source.default_model_filename, problems),
            warm_ups: warm_ups(&source, problems),
            ort,
            ignored,
            source: Arc::new(source),
        }
    }
}

/// Tags become labels of every metric of the model.
fn check_tags(source: &ModelConfig, problems: &mut Problems<'_>) {
    let tags = &source.metric_tags;
    if tags.len() > TAGS_MAX {
        problems.add("metric_tags", format!("has {} entries: expected at most {TAGS_MAX}", tags.len()));
    }
    for (name, value) in tags {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            problems.add("metric_tags", format!("has `{name}`: expected letters, digits and `_`"));
        }
        if name.len().max(value.len()) > TAG_BYTES_MAX {
            let reason = format!("has an entry of {} bytes: expected at most {TAG_BYTES_MAX}", value.len());
            problems.add("metric_tags", reason);
        }
    }
}

/// A cached answer would skip the state of a sequence, and a decoupled model has no single answer.
fn check_cache(source: &ModelConfig, problems: &mut Problems<'_>) {
    let caches = source.response_cache.as_ref().is_some_and(|cache| cache.enable);
    let sequences = matches!(source.scheduling_choice, Some(SchedulingChoice::SequenceBatching(_)));
    let decoupled = source.model_transaction_policy.as_ref().is_some_and(|policy| policy.decoupled);
    if caches && (sequences || decoupled) {
        let with = if sequences { "sequence_batching" } else { "model_transaction_policy.decoupled" };
        problems
            .add("response_cache.enable", format!("cannot be combined with `{with}`: expected one of them"));
    }
}

impl Pbtxt {
    /// Whether the file asks for Triton's Python backend.
    pub fn is_python(&self) -> bool {
        self.engine == Some(EngineChoice::Named(crate::engine::python::NAME))
    }

    /// The configuration of a Python model whose main file has this name, as its `initialize` gets it. `None`: it has no
    /// `config.pbtxt`.
    pub(super) fn python_config(
        config: Option<&Self>,
        model: &ModelName,
        file: &str,
    ) -> Result<String, String> {
        let descriptor = descriptor().ok_or("the program lacks the schema of config.pbtxt")?;
        let default = ModelConfig::default();
        crate::engine::python::to_json(
            descriptor,
            config.map_or(&default, |config| &config.source),
            model.as_str(),
            file,
        )
    }
}

fn engine(platform: &str, backend: &str, problems: &mut Problems<'_>) -> Option<EngineChoice> {
    let mut of = |field: &str, word: &str| match word {
        "" => None,
        "onnxruntime" | "onnxruntime_onnx" | "ort" => Some(EngineChoice::Named(crate::engine::ort::NAME)),
        "tract" | "tract_onnx" => Some(EngineChoice::Named(crate::engine::tract::NAME)),
        "synthetic" => Some(EngineChoice::Named(crate::engine::synthetic::NAME)),
        "python" => Some(EngineChoice::Named(crate::engine::python::NAME)),
        "ensemble" if field == "platform" => None,
        other => {
            let reason =
                format!("`{other}` is not supported: expected onnxruntime, python, tract or synthetic");
            problems.add(field, reason);
            None
        }
    };
    match (of("platform", platform), of("backend", backend)) {
        (Some(one), Some(other)) if one != other => {
            problems.add("backend", format!("`{backend}` contradicts platform `{platform}`"));
            None
        }
        // Triton's word means "whatever runs ONNX": every onnxruntime model may run on tract where there is no
        // ONNX Runtime.
        (Some(EngineChoice::Named("ort")), _) | (_, Some(EngineChoice::Named("ort"))) => {
            Some(EngineChoice::Auto)
        }
        (platform, backend) => platform.or(backend),
    }
}

/// Name, element type, dims, reshape and label file of a tensor.
type Declared<'a> = (&'a str, i32, &'a [i64], Option<&'a ModelTensorReshape>, &'a str);

fn declaration(
    at: &str,
    (name, data_type, dims, reshape, labels): Declared<'_>,
    problems: &mut Problems<'_>,
) -> Option<TensorDeclaration> {
    let path = |field: &str| format!("{at}.{field}");
    if name.is_empty() {
        problems.add(&path("name"), "is missing".to_owned());
    }
    let reshape = reshape.map(|reshape| reshape.shape.clone());
    let mut sound = true;
    for (field, dims) in [("dims", Some(dims)), ("reshape", reshape.as_deref())] {
        if let Some(dim) = dims.and_then(|dims| dims.iter().find(|&&dim| dim < -1 || dim == 0)) {
            problems.add(&path(field), format!("has {dim}: expected -1 or 1 and more"));
            sound = false;
        }
    }
    if let Some(reshape) = reshape.as_ref().filter(|reshape| sound && !agree(dims, reshape)) {
        let reason = format!("is {reshape:?}: expected a shape with as many elements as dims {dims:?}");
        problems.add(&path("reshape"), reason);
    }
    let label_filename = filename(&path("label_filename"), labels, problems);
    let Some(datatype) = datatype(data_type) else {
        problems.add(&path("data_type"), "is missing or invalid".to_owned());
        return None;
    };
    Some(TensorDeclaration {
        name: name.to_owned(),
        datatype,
        dims: dims.to_vec(),
        reshape,
        is_ragged: false,
        label_filename,
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

fn versions(source: &ModelConfig, problems: &mut Problems<'_>) -> Option<VersionPolicy> {
    let choice = source.version_policy.as_ref().and_then(|policy| policy.policy_choice.as_ref())?;
    Some(match choice {
        PolicyChoice::All(_) => VersionPolicy::All,
        PolicyChoice::Latest(latest) => {
            VersionPolicy::Latest(NonZeroU32::new(latest.num_versions).unwrap_or(NonZeroU32::MIN))
        }
        PolicyChoice::Specific(specific) => {
            let mut versions = Vec::with_capacity(specific.versions.len());
            for &number in &specific.versions {
                match u64::try_from(number).ok().filter(|&number| number > 0) {
                    Some(number) => versions.push(Version(number)),
                    None => problems
                        .add("version_policy.specific.versions", format!("has {number}: expected 1 or more")),
                }
            }
            VersionPolicy::Listed(versions)
        }
    })
}

fn preferred(sizes: &[i32], problems: &mut Problems<'_>) -> Vec<NonZeroU32> {
    let mut checked = Vec::with_capacity(sizes.len());
    for &size in sizes {
        match u32::try_from(size).ok().and_then(NonZeroU32::new) {
            Some(size) => checked.push(size),
            None => problems
                .add("dynamic_batching.preferred_batch_size", format!("has {size}: expected 1 or more")),
        }
    }
    checked.sort_unstable();
    checked.dedup();
    checked
}

fn class(path: &str, number: u64, problems: &mut Problems<'_>) -> Option<NonZeroU32> {
    if number > CLASSES_MAX {
        problems.add(path, format!("is {number}: expected at most {CLASSES_MAX}"));
    }
    u32::try_from(number).ok().and_then(NonZeroU32::new)
}

fn instances(source: &ModelConfig, problems: &mut Problems<'_>) -> Option<NonZeroU32> {
    let mut total = 0_u32;
    for (index, group) in source.instance_group.iter().enumerate() {
        match u32::try_from(group.count) {
            Ok(count) => total = total.saturating_add(count.max(1)),
            Err(_) => problems.add(
                &format!("instance_group[{index}].count"),
                format!("is {}: expected 1 or more", group.count),
            ),
        }
    }
    NonZeroU32::new(total)
}

/// A plain file name: a path could leave the model's folder.
fn filename(path: &str, name: &str, problems: &mut Problems<'_>) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Some(name.to_owned()),
        _ => {
            problems.add(path, format!("is `{name}`: expected a file name without folders"));
            None
        }
    }
}

#[cfg(test)]
mod tests;
