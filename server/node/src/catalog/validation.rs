//! The checks of a model before it is loaded. `tessera check`, the start of a server, loads and reloads run these, so they
//! find the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gpulet_core::profile::{Profile, Quantile};
use models::repository::{IgnoredField, Pbtxt};
use models::{
    ContentHash, EffectiveConfig, EngineChoice, Format, LaneChoice, ModelFiles, ModelName, ModelSettings,
    Signature, Version, inspect,
};
use router_core::RateLimit;
use router_core::batch::Policy;

use super::sequences;
use super::source::Source;
use crate::rate_limits::Resources;
use crate::{batching, objectives};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The model is not served.
    Error,
    /// It is served, but not as its settings ask.
    Warning,
    /// Something that an operator might not expect.
    Note,
}

/// Something that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// A key of the configuration, or a model, with its version after a slash.
    pub place: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Finding {
    fn error(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, place: place.into(), message: message.into() }
    }

    fn warning(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, place: place.into(), message: message.into() }
    }

    fn note(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Note, place: place.into(), message: message.into() }
    }

    /// Logs a finding about a model; errors are told by what fails.
    pub(super) fn log(&self, model: &ModelName) {
        let Self { severity, place, message } = self;
        // The event names the model already.
        let place = if place == model.as_str() { String::new() } else { format!("{place}: ") };
        match severity {
            Severity::Error => {}
            Severity::Warning => tracing::warn!(%model, "{place}{message}"),
            Severity::Note => tracing::info!(%model, "{place}{message}"),
        }
    }
}

/// What is known of a version before it is loaded.
pub struct Planned {
    /// How it is served.
    pub config: EffectiveConfig,
    pub(super) labels: BTreeMap<String, Vec<String>>,
    pub(super) policy: Policy,
    pub(super) rate_limit: RateLimit,
    pub(super) version: Version,
    pub(super) hash: ContentHash,
    pub(super) file_bytes: u64,
}

/// What models are checked against.
pub struct Checks<'a> {
    /// Their files.
    pub source: &'a Source,
    /// Engine of models that do not name one.
    pub engine: EngineChoice,
    /// Resources of the rate limiter.
    pub resources: &'a Resources,
    /// Whether the server has a response cache.
    pub caches: bool,
    /// Number of lanes; `None` if it is not fixed.
    pub lanes: Option<usize>,
    /// Profiles of models.
    pub profiles: &'a [Profile],
}

impl Checks<'_> {
    /// Checks a model and each version of it that would be served. `each` is called for those without errors.
    pub fn model(
        &self,
        name: &ModelName,
        settings: &ModelSettings,
        each: &mut dyn FnMut(&Planned, &ModelFiles) -> Vec<Finding>,
    ) -> Vec<Finding> {
        let (versions, mut findings) = self.versions(name, settings);
        for version in versions {
            match self.plan(name, version, settings) {
                Ok((planned, files, found)) => {
                    // Versions share settings.
                    let new = found.into_iter().filter(|one| !findings.contains(one)).collect::<Vec<_>>();
                    findings.extend(new);
                    findings.extend(each(&planned, &files));
                }
                Err(error) => findings.push(error),
            }
        }
        findings
    }

    /// The versions to serve, smallest first, and what is wrong with the model as a whole. With an error, there may be none.
    pub fn versions(&self, name: &ModelName, settings: &ModelSettings) -> (Vec<Version>, Vec<Finding>) {
        self.versions_without(&BTreeSet::new(), name, settings)
    }

    /// The same as if the repository did not have some versions.
    pub(super) fn versions_without(
        &self,
        without: &BTreeSet<u64>,
        name: &ModelName,
        settings: &ModelSettings,
    ) -> (Vec<Version>, Vec<Finding>) {
        let mut findings = Vec::new();
        let pbtxt = match self.source.config(name) {
            Ok(pbtxt) => pbtxt,
            Err(error) => return (Vec::new(), vec![Finding::error(name.as_str(), error.to_string())]),
        };
        findings.extend(ignored(name, pbtxt.as_ref()));
        let known = self.source.versions(name).unwrap_or_default();
        let existing: Vec<Version> = known.into_iter().map(Version).collect();
        let policy = EffectiveConfig::versions(pbtxt.as_ref(), settings);
        for missing in policy.missing(&existing) {
            let known: Vec<String> = existing.iter().map(ToString::to_string).collect();
            let known = known.join(", ");
            let message = format!("version {missing} is not in the repository: expected some of {known}");
            findings.push(Finding::error(format!("models.{name}.versions"), message));
        }
        let left: Vec<Version> =
            existing.iter().filter(|version| !without.contains(&version.0)).copied().collect();
        let selected = policy.select(&left);
        if selected.is_empty() && without.is_empty() {
            let message = "no version to serve: expected a folder such as `1` with a `model.onnx` in it";
            findings.push(Finding::error(name.as_str(), message));
        }
        if let (Some(LaneChoice::Listed(numbers)), Some(lanes)) = (&settings.lanes, self.lanes)
            && let Some(number) = numbers.iter().find(|number| **number as usize >= lanes)
        {
            let message = format!("no lane {number}: expected numbers below {lanes}, the number of lanes");
            findings.push(Finding::error(format!("models.{name}.lanes"), message));
        }
        findings.extend(settings.slo.and_then(|slo| self.objective_by_profile(name, slo.0)));
        (selected, findings)
    }

    /// Reads a version and its settings.
    ///
    /// # Errors
    /// Why it cannot be served.
    pub fn plan(
        &self,
        name: &ModelName,
        version: Version,
        settings: &ModelSettings,
    ) -> Result<(Planned, ModelFiles, Vec<Finding>), Finding> {
        let place = format!("{name}/{version}");
        self.plan_version(name, version, settings).map_err(|message| Finding::error(place, message))
    }

    fn plan_version(
        &self,
        name: &ModelName,
        version: Version,
        settings: &ModelSettings,
    ) -> Result<(Planned, ModelFiles, Vec<Finding>), String> {
        let pbtxt = self.source.config(name).map_err(|error| error.to_string())?;
        let files = self.source.read(name, version, pbtxt.as_ref()).map_err(|error| error.to_string())?;
        let signature =
            inspect(&files, &EffectiveConfig::inspection(settings)).map_err(|error| error.to_string())?;
        let mut config = EffectiveConfig::resolve(name, pbtxt.as_ref(), settings, &signature)
            .map_err(|error| error.to_string())?;
        let mut findings: Vec<Finding> =
            config.notes.iter().map(|note| Finding::note(name.as_str(), note.as_str())).collect();
        if config.caches_responses() && !self.caches {
            let message = "response_cache has no effect: `cache.max_bytes` is 0";
            findings.push(Finding::warning(name.as_str(), message));
        }
        // The engine of the repository is for models that have a choice.
        if config.engine == EngineChoice::Auto && settings.engine.is_none() && files.format == Format::Onnx {
            config.engine = self.engine;
        }
        let read = |(output, file): (&String, &String)| {
            let labels = self.source.labels(name, file).map_err(|error| error.to_string())?;
            Ok((output.clone(), labels))
        };
        let labels = config.label_files.iter().map(read).collect::<Result<_, String>>()?;
        let policy = batching::policy(&config)?;
        let rate_limit = self.resources.of(&config.rate_limiter)?;
        if !config.rate_limiter.resources.is_empty() && rate_limit.needs.is_empty() {
            let message = "instance_group.rate_limiter has no effect: rate_limit.mode is off";
            findings.push(Finding::note(name.as_str(), message));
        }
        // How often a queue is full does not matter here.
        if let (Some(_), EngineChoice::Named(engine @ models::engine::python::NAME), Some(lanes)) =
            (&config.sequences, config.engine, self.lanes_of(&config))
        {
            sequences::check_process(engine, lanes, false, false)?;
        }
        let (hash, file_bytes) = (files.hash, files.size());
        let planned = Planned { config, labels, policy, rate_limit, version, hash, file_bytes };
        Ok((planned, files, findings))
    }

    /// Lanes that a model gets; `None` if their number is not fixed.
    fn lanes_of(&self, config: &EffectiveConfig) -> Option<usize> {
        let lanes = match &config.lanes {
            LaneChoice::All => self.lanes?,
            LaneChoice::Listed(numbers) => numbers.len(),
        };
        let count = config.lane_count.and_then(|count| usize::try_from(count.get()).ok());
        Some(count.map_or(lanes, |count| lanes.min(count)))
    }

    /// A warning if no device of the profiles can keep an objective.
    fn objective_by_profile(&self, name: &ModelName, slo: Duration) -> Option<Finding> {
        let own = self.profiles.iter().filter(|profile| profile.model() == name.as_str());
        let fastest = own.filter_map(|profile| {
            let us = profile.expected_us(Quantile::P50, 1, profile.units_total()).ok()?;
            Some((Duration::from_nanos((us * 1e3) as u64), profile.device()))
        });
        let (shortest, device) = fastest.min()?;
        objective(name, slo, shortest, &format!("by its profile for `{device}`"))
    }
}

impl Planned {
    /// Whether the tensors of its sequences are those of a loaded session.
    ///
    /// # Errors
    /// The tensor that the model does not have, or that has another type or shape.
    pub fn check_sequences(&self, signature: &Signature) -> Result<(), String> {
        sequences::prepare(&self.config, signature, 1, 1).map(drop)
    }

    /// A warning if its batches take longer than its objective allows. `measured` says where the times are from.
    pub fn objective(&self, times: &[(u32, Duration)], measured: &str) -> Option<Finding> {
        let shortest = times.iter().map(|(_, time)| *time).min()?;
        objective(&self.config.name, self.config.slo?, shortest, measured)
    }
}

fn objective(name: &ModelName, slo: Duration, shortest: Duration, source: &str) -> Option<Finding> {
    let message = objectives::too_tight(slo, shortest, source)?;
    Some(Finding::warning(format!("models.{name}.slo"), message))
}

/// Fields of `config.pbtxt` without effect.
fn ignored(name: &ModelName, pbtxt: Option<&Pbtxt>) -> Vec<Finding> {
    let fields = pbtxt.into_iter().flat_map(|file| &file.ignored);
    let finding = |IgnoredField { field, reason, is_missed }: &IgnoredField| match is_missed {
        true => Finding::warning(name.as_str(), format!("{field}: not supported and ignored: {reason}")),
        false => Finding::note(name.as_str(), format!("{field}: has no effect here: {reason}")),
    };
    fields.map(finding).collect()
}
