//! How a model is served: `tessera.toml`, `config.pbtxt`, the graph and the defaults combined.

mod resolver;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use oip::proto::ModelConfig;

use crate::engine::ort::OrtSettings;
use crate::engine::python::PythonOptions;
use crate::repository::{Pbtxt, QueuePolicy, RateLimiter, SequenceBatching, WarmUp};
use crate::{
    ConfigError, EngineChoice, LaneChoice, LoadOptions, ModelClass, ModelName, ModelSettings,
    PaddingSettings, Reshape, Signature, TimeSpan, VersionPolicy,
};
use resolver::Resolver;

/// Name of the largest batch in lists of changes.
const MAX_BATCH: &str = "max_batch";

/// Policy of models whose settings do not name one.
const DEFAULT_POLICY: &str = "deadline";

/// Policy of models without an objective whose `config.pbtxt` sets a queue delay or preferred sizes.
const WAITING_POLICY: &str = "triton";

/// The effective configuration of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveConfig {
    /// Name of the model.
    pub name: ModelName,
    /// Service-level objective.
    pub slo: Option<Duration>,
    /// Which engine.
    pub engine: EngineChoice,
    /// Largest batch that the settings ask for; `None`: what the graph allows.
    pub max_batch: Option<u32>,
    /// Whether to free a batch dimension fixed at 1.
    pub free_batch: bool,
    /// Which versions to serve.
    pub versions: VersionPolicy,
    /// Batching policy by name; the router knows which exist.
    pub policy: String,
    /// Longest wait for a batch to fill.
    pub max_delay: Duration,
    /// Batch sizes to aim for, rising.
    pub preferred: Vec<NonZeroU32>,
    /// Number of priority classes; class 1 is the most important.
    pub classes: NonZeroU32,
    /// Class of requests that bring no priority.
    pub default_class: NonZeroU32,
    /// Whether all requests are of best effort.
    pub best_effort: bool,
    /// Limits of queued requests. A timeout replaces the SLO.
    pub queue: QueuePolicy,
    /// Limits of the classes that have their own.
    pub class_queues: BTreeMap<u32, QueuePolicy>,
    /// Longest timeout of a request; `None`: the server's.
    pub timeout_max: Option<Duration>,
    /// Which lanes.
    pub lanes: LaneChoice,
    /// Number of fault domains that must hold the model.
    pub replicas_min: NonZeroU32,
    /// Number of lanes to use at most, from `instance_group`; `None`: all that `lanes` names.
    pub lane_count: Option<NonZeroU32>,
    /// How sequences of requests run, if the model takes sequences.
    pub sequences: Option<SequenceBatching>,
    /// What each running batch holds, for the rate limiter.
    pub rate_limiter: RateLimiter,
    /// Requests to run before the model is ready, in addition to sample inputs.
    pub warm_ups: Vec<WarmUp>,
    /// Tensors whose shape for clients differs from their shape in the graph.
    pub reshapes: Vec<Reshape>,
    /// How requests of unlike lengths are padded; `None`: they are not.
    pub padding: Option<PaddingSettings>,
    /// Session settings for ONNX Runtime.
    pub ort: OrtSettings,
    /// Label files in the model's folder by output.
    pub label_files: BTreeMap<String, String>,
    /// How to run the model if it is a Python model.
    pub python: PythonOptions,
    /// Decisions that an operator might not expect, for the log.
    pub notes: Vec<String>,
    /// `config.pbtxt` as protobuf, for the model configuration extension; `None` without the file.
    pub written: Option<Arc<ModelConfig>>,
}

/// A setting whose value changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// Its name in `[models.NAME]`, or that of the field of `config.pbtxt`.
    pub setting: &'static str,
    /// Value before; empty if it is not shown.
    pub from: String,
    /// Value now.
    pub to: String,
    /// Whether sessions have to be loaded again for it.
    pub needs_sessions: bool,
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from.as_str() {
            "" => write!(f, "{}: {}", self.setting, self.to),
            from => write!(f, "{}: {from} -> {}", self.setting, self.to),
        }
    }
}

impl EffectiveConfig {
    /// Combines `config.pbtxt` and `tessera.toml` for a model with this signature. `tessera.toml` wins where both set an
    /// option. Options that contradict each other are an error.
    ///
    /// `signature` is that of [`inspect`](crate::inspect) under [`EffectiveConfig::inspection`].
    pub fn resolve(
        name: &ModelName,
        pbtxt: Option<&Pbtxt>,
        settings: &ModelSettings,
        signature: &Signature,
    ) -> Result<Self, ConfigError> {
        let resolver = Resolver { name, settings, signature };
        let max_batch = settings.max_batch.or(pbtxt.and_then(|file| file.max_batch));
        resolver.check_batch(max_batch)?;
        let limit = max_batch.unwrap_or(signature.max_batch);
        let mut reshapes = Vec::new();
        if let Some(file) = pbtxt {
            reshapes.extend(resolver.check_tensors("input", &file.inputs, &signature.inputs, file)?);
            reshapes.extend(resolver.check_tensors("output", &file.outputs, &signature.outputs, file)?);
        }
        resolver.check_padding(pbtxt, limit)?;
        let preferred = resolver.preferred(pbtxt, limit)?;
        let max_delay =
            settings.batching.max_delay.map(|span| span.0).or(pbtxt.and_then(|file| file.max_delay));
        let (classes, default_class) = resolver.classes(pbtxt)?;
        resolver.check_times()?;
        resolver.check_python(pbtxt)?;
        let best_effort = settings.class == Some(ModelClass::BestEffort);
        if best_effort && settings.slo.is_some() {
            let problem = "a model with `class = \"best_effort\"` has no objective: expected one of both";
            return Err(resolver.refuse(resolver.toml("slo"), problem.to_owned()));
        }
        let own = &settings.batching;
        let (mut max_delay, mut preferred) = (max_delay.unwrap_or_default(), preferred);
        let waits = !max_delay.is_zero() || !preferred.is_empty();
        // An objective says more than a fixed delay, so it decides unless `tessera.toml` asks for the delay itself.
        let objective_wins = waits
            && settings.slo.is_some()
            && own.policy.is_none()
            && own.max_delay.is_none()
            && own.preferred.is_none();
        let mut notes = Vec::new();
        if objective_wins {
            (max_delay, preferred) = (Duration::ZERO, Vec::new());
            notes.push(format!(
                "policy `{DEFAULT_POLICY}`, because `slo` is set: the queue delay and preferred sizes of config.pbtxt have no \
                 effect (`batching.policy = \"{WAITING_POLICY}\"` uses them)"
            ));
        }
        let policy = if waits && !objective_wins { WAITING_POLICY } else { DEFAULT_POLICY };
        let limited =
            |queue: QueuePolicy| QueuePolicy { max_size: settings.queue_limit.or(queue.max_size), ..queue };
        let class_queues = pbtxt.map(|file| file.level_queues.clone()).unwrap_or_default().into_iter();
        let engine = settings.engine.or(pbtxt.and_then(|file| file.engine)).unwrap_or_default();
        resolver.check_engine(pbtxt, engine, &mut notes)?;
        let engine = resolver.engine(engine);
        let labels = pbtxt.map(|file| file.outputs.as_slice()).unwrap_or_default().iter();
        Ok(Self {
            name: name.clone(),
            slo: settings.slo.map(|span| span.0),
            engine,
            max_batch,
            free_batch: settings.free_batch.unwrap_or(false),
            versions: Self::versions(pbtxt, settings),
            policy: settings.batching.policy.clone().unwrap_or_else(|| policy.to_owned()),
            max_delay,
            preferred,
            classes,
            default_class,
            best_effort,
            queue: limited(pbtxt.map(|file| file.queue.clone()).unwrap_or_default()),
            class_queues: class_queues.map(|(class, queue)| (class, limited(queue))).collect(),
            timeout_max: settings.timeout_max.map(|span| span.0),
            lanes: settings.lanes.clone().unwrap_or_default(),
            replicas_min: settings.replicas_min.unwrap_or(NonZeroU32::MIN),
            lane_count: pbtxt.and_then(|file| file.instances),
            sequences: pbtxt.and_then(|file| file.sequences.clone()),
            rate_limiter: pbtxt.map(|file| file.rate_limiter.clone()).unwrap_or_default(),
            warm_ups: pbtxt.map(|file| file.warm_ups.clone()).unwrap_or_default(),
            reshapes,
            padding: settings.batching.padding.clone(),
            ort: settings
                .ort
                .clone()
                .unwrap_or_default()
                .over(pbtxt.map(|file| file.ort.clone()).unwrap_or_default()),
            label_files: labels
                .filter_map(|output| Some((output.name.clone(), output.label_filename.clone()?)))
                .collect(),
            python: settings.python_options(),
            notes,
            written: pbtxt.map(|file| Arc::clone(&file.source)),
        })
    }

    /// What differs in `new`, for a version whose sessions take batches of up to `max_batch` rows.
    pub fn changes(&self, new: &Self, max_batch: u32) -> Vec<SettingChange> {
        let pairs = self.entries().into_iter().zip(new.entries());
        let changes = pairs.filter(|((_, _, from), (_, _, to))| from != to);
        let changes = changes.map(|((setting, needs_sessions, from), (_, _, to))| SettingChange {
            setting,
            from,
            to,
            needs_sessions,
        });
        // A file that names the batch that the sessions have anyway changes nothing.
        let same_batch = self.max_batch.is_none() && new.max_batch == Some(max_batch);
        let mut changes: Vec<SettingChange> =
            changes.filter(|change| !(same_batch && change.setting == MAX_BATCH)).collect();
        let of_sessions = changes.iter().any(|change| change.needs_sessions);
        if self.rest_of_file() != new.rest_of_file() && !of_sessions {
            // A Python model gets the whole file. What other sessions read of it is compared above.
            let needs_sessions = self.is_python() || new.is_python();
            let to = match (&self.written, &new.written) {
                (None, _) => "added",
                (Some(_), None) => "removed",
                (Some(_), Some(_)) => "other fields changed",
            };
            let (setting, from, to) = ("config.pbtxt", String::new(), to.to_owned());
            changes.push(SettingChange { setting, from, to, needs_sessions });
        }
        changes
    }

    fn is_python(&self) -> bool {
        self.engine == EngineChoice::Named(crate::engine::python::NAME)
    }

    /// The fields of `config.pbtxt` that have no entry: all but those about scheduling.
    fn rest_of_file(&self) -> Option<ModelConfig> {
        let written = self.written.as_deref()?;
        Some(ModelConfig { scheduling_choice: None, version_policy: None, ..written.clone() })
    }

    /// Every setting: its name, whether a change needs new sessions, and its value.
    fn entries(&self) -> Vec<(&'static str, bool, String)> {
        // No `..` here: a new setting has to be sorted.
        let Self {
            name: _,
            notes: _,
            slo,
            engine,
            max_batch,
            free_batch,
            versions,
            policy,
            max_delay,
            preferred,
            classes,
            default_class,
            best_effort,
            queue,
            class_queues,
            timeout_max,
            lanes,
            replicas_min,
            lane_count,
            rate_limiter,
            warm_ups,
            reshapes,
            padding,
            ort,
            sequences,
            python,
            label_files,
            written: _,
        } = self;
        // Whether accelerators are required means nothing without any.
        let required = ort.accelerators_required && !ort.accelerators.is_empty();
        let ort = OrtSettings { accelerators_required: required, ..ort.clone() };
        let span =
            |span: &Option<Duration>| span.map_or("none".to_owned(), |span| TimeSpan(span).to_string());
        let number =
            |number: &Option<NonZeroU32>| number.map_or("default".to_owned(), |number| number.to_string());
        vec![
            ("slo", false, span(slo)),
            ("versions", false, format!("{versions:?}").to_lowercase()),
            ("batching.policy", false, policy.clone()),
            ("batching.max_delay", false, TimeSpan(*max_delay).to_string()),
            ("batching.preferred", false, format!("{preferred:?}")),
            ("queue_limit", false, number(&queue.max_size)),
            ("classes", false, classes.to_string()),
            ("default_class", false, default_class.to_string()),
            ("class", true, if *best_effort { "best_effort" } else { "online" }.to_owned()),
            ("default_timeout", false, span(&queue.default_timeout)),
            ("timeout_override", false, queue.timeout_override.to_string()),
            ("timeout_delays", false, queue.delays.to_string()),
            ("priority_queue_policy", false, format!("{class_queues:?}")),
            ("timeout_max", false, span(timeout_max)),
            ("labels", false, format!("{label_files:?}")),
            ("replicas_min", false, replicas_min.to_string()),
            ("engine", true, engine.name().to_owned()),
            (MAX_BATCH, true, max_batch.map_or("default".to_owned(), |rows| rows.to_string())),
            ("free_batch", true, free_batch.to_string()),
            ("lanes", true, format!("{lanes:?}").to_lowercase()),
            ("instance_group", true, number(lane_count)),
            ("rate_limiter", true, format!("{rate_limiter:?}")),
            ("padding", true, format!("{padding:?}")),
            ("onnxruntime", true, format!("{ort:?}")),
            ("sequence_batching", true, format!("{sequences:?}")),
            ("python", true, format!("{python:?}")),
            ("model_warmup", true, format!("{warm_ups:?}")),
            ("reshape", true, format!("{reshapes:?}")),
            ("response_cache", true, self.caches_responses().to_string()),
            ("metric_tags", true, format!("{:?}", self.metric_tags())),
        ]
    }

    /// Whether `config.pbtxt` enables the response cache.
    pub fn caches_responses(&self) -> bool {
        let cache = self.written.as_ref().and_then(|file| file.response_cache.as_ref());
        cache.is_some_and(|cache| cache.enable)
    }

    /// Labels for the model's metrics, from `metric_tags`.
    pub fn metric_tags(&self) -> BTreeMap<String, String> {
        self.written.as_ref().map(|file| file.metric_tags.clone()).unwrap_or_default()
    }

    /// Which versions to serve, before any was read.
    pub fn versions(pbtxt: Option<&Pbtxt>, settings: &ModelSettings) -> VersionPolicy {
        settings.versions.clone().or_else(|| pbtxt.and_then(|file| file.versions.clone())).unwrap_or_default()
    }

    /// The class of a request with a `priority`; 0 and levels that the model does not have mean its default.
    pub fn class(&self, priority: u64) -> NonZeroU32 {
        let asked = u32::try_from(priority).ok().and_then(NonZeroU32::new);
        asked.filter(|class| *class <= self.classes).unwrap_or(self.default_class)
    }

    /// Limits of the queued requests of a class.
    pub fn queue_of(&self, class: NonZeroU32) -> &QueuePolicy {
        self.class_queues.get(&class.get()).unwrap_or(&self.queue)
    }

    /// The options under which [`inspect`](crate::inspect) tells what the graph allows.
    pub fn inspection(settings: &ModelSettings) -> LoadOptions {
        let python = settings.python_options();
        LoadOptions { free_batch: settings.free_batch.unwrap_or(false), python, ..LoadOptions::default() }
    }

    /// The options to load this model with for one lane.
    pub fn load_options(&self, cores: &[usize], idle_priority: bool) -> LoadOptions {
        LoadOptions {
            engine: self.engine,
            threads: cores.len().max(1),
            cores: cores.to_vec(),
            idle_priority,
            free_batch: self.free_batch,
            max_batch: self.max_batch,
            reshapes: self.reshapes.clone(),
            ort: self.ort.clone(),
            python: self.python.clone(),
            ..LoadOptions::default()
        }
    }
}

#[cfg(test)]
mod tests;
