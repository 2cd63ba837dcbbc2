//! Preparing a version: its settings, and its sessions on every lane of the model.

use std::time::{Duration, Instant};

use gpulet::LaneHandle;
use models::engine::Session;
use models::engine::ort::PreparedModel;
use models::{
    EffectiveConfig, Known, LaneChoice, LoadOptions, ModelFiles, ModelName, ModelSettings, Padding,
    Reference, Signature, Version, WarmTimes, profile_padded, warm, warm_and_profile,
};

use super::Catalog;
use super::memory::MemoryLease;
use super::validation::{Checks, Planned};

/// What a version's first session says, and its batch times and reference answer.
pub(super) struct First {
    pub signature: Signature,
    pub engine: &'static str,
    pub takes_requests: bool,
    pub decoupled: bool,
    pub measured: WarmTimes,
    pub reference: Option<Reference>,
    pub padded: Option<Padded>,
    /// Where gpulets come and go, what later sessions are made from.
    pub prepared: Option<PreparedModel>,
}

/// How requests are padded, and batch times by rows and input bytes of a row.
pub(super) type Padded = (Padding, Vec<(u32, u64, Duration)>);

/// A version whose sessions are loaded and warmed up.
pub(super) struct Warmed {
    pub planned: Planned,
    pub first: First,
    pub sessions: Vec<(LaneHandle, Box<dyn Session>)>,
    pub load_time: Duration,
    /// Its memory in the ledger, if there is one.
    pub memory: Option<MemoryLease>,
}

impl Catalog {
    /// What models are checked against. Which lanes there are shows when they are loaded.
    pub(super) fn checks(&self) -> Checks<'_> {
        Checks {
            source: &self.source,
            engine: self.environment.engine,
            resources: &self.environment.resources,
            caches: self.response_cache().is_on(),
            lanes: None,
            profiles: &self.environment.profiles,
        }
    }

    /// Reads a version and its settings.
    pub(super) fn plan(
        &self,
        name: &ModelName,
        version: Version,
        settings: &ModelSettings,
    ) -> Result<(Planned, ModelFiles), String> {
        let planned = self.checks().plan(name, version, settings);
        let (planned, files, findings) = planned.map_err(|error| error.message)?;
        findings.iter().for_each(|finding| finding.log(name));
        Ok((planned, files))
    }

    /// Loads and runs a session for every lane of the model. The first is measured.
    pub(super) fn warm(
        &self,
        planned: Planned,
        files: &ModelFiles,
        memory: Option<MemoryLease>,
    ) -> Result<Warmed, String> {
        let config = &planned.config;
        let lanes = self.lanes_for(config)?;
        if config.best_effort && self.environment.idle_lanes.is_empty() {
            let model = &config.name;
            tracing::info!(%model, "best effort without lanes of idle priority: it runs on lanes that no request wants");
        }
        let started = Instant::now();
        let mut sessions = Vec::with_capacity(lanes.len());
        let mut first: Option<First> = None;
        // A single session has no use for weights that stay in memory for others.
        let share_weights = lanes.len() > 1 || self.environment.live;
        for lane in lanes {
            let known = first
                .as_ref()
                .map(|first| Known { engine: first.engine, signature: first.signature.clone() });
            let options = LoadOptions { known, share_weights, ..self.options_on(config, &lane) };
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
                    prepared: session.prepared().filter(|_| self.environment.live),
                });
            } else {
                warm(session.as_mut(), config).map_err(|error| error.to_string())?;
            }
            sessions.push((lane, session));
        }
        let first = first.ok_or("no lane may run it")?;
        let load_time = started.elapsed();
        if let Some(finding) = planned.objective(&first.measured.times, "measured while it was loaded") {
            finding.log(&config.name);
        }
        tracing::debug!(model = %config.name, version = %planned.version, took = ?load_time, "loaded and measured");
        Ok(Warmed { planned, first, sessions, load_time, memory })
    }

    /// The lanes that a model is configured for.
    pub(super) fn lanes_for(&self, config: &EffectiveConfig) -> Result<Vec<LaneHandle>, String> {
        self.lanes_out_of(&self.layout.load(), config)
    }

    /// The lanes, of those given, that a model is configured for.
    pub(super) fn lanes_out_of(
        &self,
        all: &[LaneHandle],
        config: &EffectiveConfig,
    ) -> Result<Vec<LaneHandle>, String> {
        let idle_lanes = &self.environment.idle_lanes;
        let at_idle_priority = self.runs_at_idle_priority(config);
        let has_its_priority = |lane: &&LaneHandle| lane.partition().idle_priority() == at_idle_priority;
        let mut lanes: Vec<LaneHandle> = match &config.lanes {
            LaneChoice::All => all.iter().filter(has_its_priority).cloned().collect(),
            LaneChoice::Listed(numbers) => {
                let find = |number: &u32| {
                    let own = idle_lanes.get(number).filter(|_| at_idle_priority).unwrap_or(number);
                    let found = all.iter().find(|lane| lane.id() == *own && has_its_priority(lane)).cloned();
                    found.ok_or_else(|| {
                        let ordinary = all.iter().filter(|lane| !lane.partition().idle_priority());
                        let known: Vec<u32> = ordinary.map(LaneHandle::id).collect();
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
    let padding = Padding::prove(&config.name, session, settings).map_err(refuse)?;
    let times = profile_padded(session, &padding).map_err(refuse)?;
    tracing::info!(model = %config.name, buckets = ?padding.buckets(), "requests are padded to these lengths");
    Ok(Some((padding, times)))
}
