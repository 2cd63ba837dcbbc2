//! Preparing a version: its settings, and its sessions on every lane of the model.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpulet::LaneHandle;
use models::engine::Session;
use models::{
    ContentHash, EffectiveConfig, EngineChoice, Format, Known, LaneChoice, LoadOptions, ModelFiles,
    ModelName, Padding, Reference, Signature, Version, inspect, profile_padded, warm, warm_and_profile,
};
use router_core::RateLimit;
use router_core::batch::Policy;

use super::Catalog;
use crate::{batching, objectives};

/// What is known of a version before it is loaded.
pub(super) struct Planned {
    pub config: EffectiveConfig,
    pub labels: BTreeMap<String, Vec<String>>,
    pub policy: Policy,
    pub rate_limit: RateLimit,
    pub version: Version,
    pub hash: ContentHash,
    pub file_bytes: u64,
}

/// What a version's first session says, and its batch times and reference answer.
pub(super) struct First {
    pub signature: Signature,
    pub engine: &'static str,
    pub takes_requests: bool,
    pub decoupled: bool,
    pub measured: Vec<(u32, Duration)>,
    pub reference: Option<Reference>,
    pub padded: Option<Padded>,
}

/// How requests are padded, and batch times by rows and input bytes of a row.
pub(super) type Padded = (Padding, Vec<(u32, u64, Duration)>);

/// A version whose sessions are loaded and warmed up.
pub(super) struct Warmed {
    pub planned: Planned,
    pub first: First,
    pub sessions: Vec<(LaneHandle, Box<dyn Session>)>,
    pub load_time: Duration,
}

impl Catalog {
    /// Reads a version and its settings.
    pub(super) fn plan(&self, name: &ModelName, version: Version) -> Result<(Planned, ModelFiles), String> {
        let settings = self.settings(name);
        let pbtxt = self.source.config(name).map_err(|error| error.to_string())?;
        let files = self.source.read(name, version, pbtxt.as_ref()).map_err(|error| error.to_string())?;
        let signature =
            inspect(&files, &EffectiveConfig::inspection(&settings)).map_err(|error| error.to_string())?;
        let mut config = EffectiveConfig::resolve(name, pbtxt.as_ref(), &settings, &signature)
            .map_err(|error| error.to_string())?;
        for note in &config.notes {
            tracing::info!(model = %name, "{note}");
        }
        if config.caches_responses() && !self.response_cache().is_on() {
            tracing::warn!(model = %name, "response_cache has no effect: `cache.max_bytes` is 0");
        }
        // The engine of the repository is for models that have a choice.
        if config.engine == EngineChoice::Auto && settings.engine.is_none() && files.format == Format::Onnx {
            config.engine = self.environment.engine;
        }
        let read = |(output, file): (&String, &String)| {
            let labels = self.source.labels(name, file).map_err(|error| error.to_string())?;
            Ok((output.clone(), labels))
        };
        let labels = config.label_files.iter().map(read).collect::<Result<_, String>>()?;
        let policy = batching::policy(&config)?;
        let rate_limit = self.environment.resources.of(&config.rate_limiter)?;
        if !config.rate_limiter.resources.is_empty() && rate_limit.needs.is_empty() {
            tracing::info!(model = %name, "instance_group.rate_limiter has no effect: rate_limit.mode is off");
        }
        let (hash, file_bytes) = (files.hash, files.size());
        Ok((Planned { config, labels, policy, rate_limit, version, hash, file_bytes }, files))
    }

    /// Loads and runs a session for every lane of the model. The first is measured.
    pub(super) fn warm(&self, planned: Planned, files: &ModelFiles) -> Result<Warmed, String> {
        let config = &planned.config;
        let lanes = self.lanes_for(config)?;
        let started = Instant::now();
        let mut sessions = Vec::with_capacity(lanes.len());
        let mut first: Option<First> = None;
        for lane in lanes {
            let known = first
                .as_ref()
                .map(|first| Known { engine: first.engine, signature: first.signature.clone() });
            let options = config.load_options(lane.cores().len().max(1), lane.cores().to_vec());
            let options = LoadOptions { known, ..options };
            let loaded = lane.partition().load(files, &options);
            let mut session = loaded.map_err(|error| error.to_string())?;
            if first.is_none() {
                let times = warm_and_profile(session.as_mut(), config).map_err(|error| error.to_string())?;
                let reference = if self.environment.verify { Reference::of(session.as_mut()) } else { None };
                let padded = padded(session.as_mut(), config)?;
                first = Some(First {
                    signature: session.signature().clone(),
                    engine: session.engine(),
                    takes_requests: session.takes_requests(),
                    decoupled: session.decoupled(),
                    measured: times,
                    reference,
                    padded,
                });
            } else {
                warm(session.as_mut(), config).map_err(|error| error.to_string())?;
            }
            sessions.push((lane, session));
        }
        let first = first.ok_or("no lane may run it")?;
        let load_time = started.elapsed();
        let shortest = first.measured.iter().map(|(_, time)| *time).min();
        if let Some(warning) = config
            .slo
            .zip(shortest)
            .and_then(|(slo, shortest)| objectives::too_tight(slo, shortest, "measured while it was loaded"))
        {
            tracing::warn!(model = %config.name, "slo: {warning}");
        }
        tracing::debug!(model = %config.name, version = %planned.version, took = ?load_time, "loaded and measured");
        Ok(Warmed { planned, first, sessions, load_time })
    }

    fn lanes_for(&self, config: &EffectiveConfig) -> Result<Vec<LaneHandle>, String> {
        self.lanes_out_of(&self.layout.load(), config)
    }

    /// The lanes, of those given, that a model is configured for.
    pub(super) fn lanes_out_of(
        &self,
        all: &[LaneHandle],
        config: &EffectiveConfig,
    ) -> Result<Vec<LaneHandle>, String> {
        let mut lanes = match &config.lanes {
            LaneChoice::All => all.to_vec(),
            LaneChoice::Listed(numbers) => {
                let find = |number: &u32| {
                    let found = all.iter().find(|lane| lane.id() == *number).cloned();
                    found.ok_or_else(|| {
                        let known: Vec<u32> = all.iter().map(LaneHandle::id).collect();
                        format!("models.{}.lanes: lane {number} is not up, out of {known:?}", config.name)
                    })
                };
                numbers.iter().map(find).collect::<Result<_, _>>()?
            }
        };
        // Where gpulets follow the load, the plan decides how many a model has.
        if let Some(count) = config.lane_count.filter(|_| !self.environment.live) {
            lanes.truncate(usize::try_from(count.get()).unwrap_or(usize::MAX));
        }
        Ok(lanes)
    }
}

/// Proves that requests can be padded, if the settings ask for it, and measures padded batches.
fn padded(session: &mut dyn Session, config: &EffectiveConfig) -> Result<Option<Padded>, String> {
    let Some(settings) = &config.padding else { return Ok(None) };
    let refuse = |reason: String| format!("models.{}.batching.padding: {reason}", config.name);
    if session.takes_requests() {
        return Err(refuse(
            "the model gets each request by itself: expected a model that gets batches".to_owned(),
        ));
    }
    let padding = Padding::prove(session, settings).map_err(refuse)?;
    let times = profile_padded(session, &padding).map_err(refuse)?;
    tracing::info!(model = %config.name, buckets = ?padding.buckets(), "requests are padded to these lengths");
    Ok(Some((padding, times)))
}
