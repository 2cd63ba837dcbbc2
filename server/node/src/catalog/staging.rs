//! Loads that take effect together or not at all.
//!
//! A staged version has its sessions on its lanes and is known to the router, but gets no requests. What changes for a version
//! that serves is only planned. [`Staging::commit`] puts all of it in force, [`Staging::abandon`] removes it again. Until
//! then the old versions serve, so a staging needs memory for both.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpulet_core::memory_ledger::Need;
use models::{Format, ModelFiles, ModelName, ModelSettings, Version};
use serde::Serialize;
use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard};

use super::background::{LoadPriority, ThreadError};
use super::overrides::Override;
use super::rollouts::Plan;
use super::selection::Selection;
use super::validation::Planned;
use super::version::Loaded;
use super::{Catalog, LoadState, Model, unknown_model};
use crate::metrics::names;
use crate::reason::{Reason, Refusal};

/// What a load did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadReport {
    /// Versions that were loaded, because they are new or their files or sessions changed.
    pub loaded: Vec<u64>,
    /// Versions that are no longer served.
    pub unloaded: Vec<u64>,
    /// What changed: settings with their old and new values.
    pub changes: Vec<String>,
}

impl LoadReport {
    fn add(&mut self, changes: Vec<String>) {
        // Versions share settings.
        let new = changes.into_iter().filter(|change| !self.changes.contains(change)).collect::<Vec<_>>();
        self.changes.extend(new);
    }
}

/// Where a model's `config.pbtxt` and files come from.
pub(super) enum Files {
    /// From where they came at the last load.
    AsBefore,
    /// From the client, or without an override from the repository.
    Sent(Option<Arc<Override>>),
}

/// Loads that wait to be committed or abandoned. One of the two must be called, or the staged versions keep their memory.
#[must_use]
pub struct Staging {
    catalog: Arc<Catalog>,
    /// Lanes do not change before the end.
    _layout: OwnedRwLockReadGuard<()>,
    loads: Vec<StagedLoad>,
}

/// The load of one model.
struct StagedLoad {
    name: ModelName,
    model: Arc<Model>,
    /// No other load of this model before the end.
    _control: OwnedMutexGuard<()>,
    replaced: Option<Arc<Override>>,
    states: BTreeMap<u64, LoadState>,
    before: Arc<BTreeMap<u64, Arc<Loaded>>>,
    versions: BTreeMap<u64, StagedVersion>,
    rollout: Option<Plan>,
    report: LoadReport,
}

enum StagedVersion {
    /// A new version with its sessions.
    New(Arc<Loaded>),
    /// The version that serves, with the settings that it is to have if they changed.
    Same(Arc<Loaded>, Option<Box<Planned>>),
}

impl StagedVersion {
    fn loaded(&self) -> &Loaded {
        match self {
            Self::New(loaded) | Self::Same(loaded, _) => loaded,
        }
    }
}

/// What a version is, before its sessions are loaded.
enum Read {
    /// It needs sessions: its settings, its files and its memory.
    New(Box<(Planned, ModelFiles, Need)>),
    /// The version that serves may go on with these settings.
    Same(Arc<Loaded>, Box<Planned>),
}

/// Why a version was not staged. Version 0 stands for the whole model.
struct NotStaged {
    version: u64,
    reason: String,
}

impl Staging {
    /// Nothing staged yet. Waits for a change of lanes that is under way.
    pub async fn new(catalog: &Arc<Catalog>) -> Self {
        let layout = Arc::clone(&catalog.changing).read_owned().await;
        Self { catalog: Arc::clone(catalog), _layout: layout, loads: Vec::new() }
    }

    /// Stages a model with the settings of its table. Its files are those of its last load.
    ///
    /// # Errors
    /// Why it cannot be loaded. What was staged before stays staged.
    pub async fn add(
        &mut self,
        name: &str,
        settings: Option<ModelSettings>,
        priority: LoadPriority,
    ) -> Result<(), Refusal> {
        self.add_from(Files::AsBefore, name, settings, priority).await
    }

    /// Stages an evicted model, with its present settings and the files of its last load. None, with nothing staged, if a client
    /// loads or unloads it, or did so since it was evicted.
    ///
    /// # Errors
    /// As [`Staging::add`].
    pub(super) async fn add_evicted(
        &mut self,
        name: &str,
        priority: LoadPriority,
    ) -> Option<Result<(), Refusal>> {
        let valid = ModelName::new(name).ok()?;
        let model = Arc::clone(self.catalog.models.get(name)?.value());
        let control = Arc::clone(&model.control).try_lock_owned().ok()?;
        if !self.catalog.is_evicted(name) {
            return None;
        }
        let settings = self.catalog.settings.load().get(name).cloned();
        let added = self.add_controlled(Files::AsBefore, valid, model, control, settings, priority).await;
        // If it failed, the model stays evicted, unless a client loads or unloads it.
        if added.is_ok() {
            self.catalog.want(name, true);
            self.catalog.forget_evicted(name);
        }
        Some(added)
    }

    pub(super) async fn add_from(
        &mut self,
        files: Files,
        name: &str,
        settings: Option<ModelSettings>,
        priority: LoadPriority,
    ) -> Result<(), Refusal> {
        let valid =
            ModelName::new(name).map_err(|error| Refusal::new(Reason::Malformed, error.to_string()))?;
        let overrides = self.catalog.source.overrides();
        let has_files = |sent: Option<&Arc<Override>>| sent.is_some_and(|sent| sent.files.is_some());
        let is_known = match &files {
            Files::AsBefore => has_files(overrides.get(name).as_ref()),
            Files::Sent(sent) => has_files(sent.as_ref()),
        };
        if !is_known && self.catalog.source.versions(&valid).is_none() {
            return Err(unknown_model(name));
        }
        let model = Arc::clone(self.catalog.models.entry(name.to_owned()).or_default().value());
        let control = Arc::clone(&model.control).lock_owned().await;
        self.catalog.want(name, true);
        self.catalog.forget_evicted(name);
        self.add_controlled(files, valid, model, control, settings, priority).await
    }

    async fn add_controlled(
        &mut self,
        files: Files,
        valid: ModelName,
        model: Arc<Model>,
        control: OwnedMutexGuard<()>,
        settings: Option<ModelSettings>,
        priority: LoadPriority,
    ) -> Result<(), Refusal> {
        let (name, overrides) = (valid.as_str().to_owned(), self.catalog.source.overrides());
        let name = name.as_str();
        let is_asked = matches!(files, Files::Sent(_));
        let replaced = match files {
            Files::AsBefore => overrides.get(name),
            Files::Sent(sent) => overrides.replace(name, sent)?,
        };
        if is_asked {
            model.rollouts.forget_rejected();
        }
        let mut load = StagedLoad {
            name: valid,
            _control: control,
            replaced,
            states: model.states(),
            before: model.serving.load_full(),
            versions: BTreeMap::new(),
            rollout: None,
            report: LoadReport::default(),
            model,
        };
        match self.catalog.stage(&mut load, &settings.unwrap_or_default(), priority).await {
            Ok(()) => {
                self.loads.push(load);
                Ok(())
            }
            Err(NotStaged { version, reason }) => {
                metrics::counter!(names::LOAD_FAILURES.name, names::MODEL => name.to_owned()).increment(1);
                tracing::warn!(model = name, %reason, "cannot load");
                if !load.before.contains_key(&version) {
                    load.states.insert(version, LoadState::Unavailable(reason.clone()));
                }
                self.catalog.abandon(load).await;
                Err(Refusal::new(Reason::LoadFailed, format!("model `{name}`: {reason}")))
            }
        }
    }

    /// Puts everything that is staged in force. Returns what changed, by model, once replaced versions have answered their last
    /// requests.
    pub async fn commit(self) -> BTreeMap<String, LoadReport> {
        let mut replaced = Vec::with_capacity(self.loads.len());
        for load in self.loads {
            replaced.push(self.catalog.commit(load).await);
        }
        let mut reports = BTreeMap::new();
        for Committed { name, report, old, control } in replaced {
            for loaded in old {
                self.catalog.retire(&loaded).await;
            }
            drop(control);
            reports.insert(name, report);
        }
        reports
    }

    /// Removes everything that is staged. What served before serves on as it was.
    pub async fn abandon(self) {
        for load in self.loads {
            self.catalog.abandon(load).await;
        }
    }
}

/// A load in force.
struct Committed {
    name: String,
    report: LoadReport,
    /// Versions that get no further requests.
    old: Vec<Arc<Loaded>>,
    control: OwnedMutexGuard<()>,
}

impl Catalog {
    async fn stage(
        self: &Arc<Self>,
        load: &mut StagedLoad,
        settings: &ModelSettings,
        priority: LoadPriority,
    ) -> Result<(), NotStaged> {
        let whole = |reason| NotStaged { version: 0, reason };
        let selected = self.select(&load.name, settings, &load.model, &load.before, priority);
        let Selection { versions, mut rollout, rejected } = selected.await.map_err(whole)?;
        let left_out =
            rejected.iter().map(|version| format!("version {version}: left out, it was rolled back"));
        load.report.add(left_out.collect());
        let known = self.source.versions(&load.name).unwrap_or_default();
        for version in versions {
            let old = load.before.get(&version.0).cloned();
            let is_stable = rollout.as_ref().is_some_and(|plan| plan.stable == version.0);
            if let Some(old) = old.clone().filter(|_| is_stable && !known.contains(&version.0)) {
                // Its files may be removed once it is loaded.
                load.versions.insert(version.0, StagedVersion::Same(old, None));
                continue;
            }
            if old.is_none() {
                load.model.set(version.0, LoadState::Loading);
            }
            let staged = self.stage_version(&load.name, version, settings, old.clone(), priority).await;
            let (staged, changes) = match staged {
                Ok(staged) => staged,
                Err(reason) if is_stable && old.is_none() => {
                    let (model, version) = (load.name.as_str(), version.0);
                    tracing::warn!(
                        model,
                        version,
                        reason,
                        "cannot load the version before the newest: the newest serves without a roll-out"
                    );
                    load.model.set(version, LoadState::Unavailable(reason));
                    rollout = None;
                    continue;
                }
                Err(reason) => return Err(NotStaged { version: version.0, reason }),
            };
            if let StagedVersion::New(loaded) = &staged {
                load.report.loaded.push(version.0);
                let is_canary = rollout.as_ref().is_some_and(|plan| plan.canary == version.0);
                if settings.rollout.is_some() && !is_canary && old.is_some_and(|old| old.hash != loaded.hash)
                {
                    let (model, version) = (load.name.as_str(), version.0);
                    tracing::warn!(
                        model,
                        version,
                        "its files changed: they are replaced without a roll-out, which needs a new version number"
                    );
                }
            }
            load.report.add(changes);
            load.versions.insert(version.0, staged);
        }
        if let Some(plan) = &rollout {
            let canary = load.versions.get(&plan.canary).map(StagedVersion::loaded);
            if let Some(reason) = canary.and_then(|canary| plan.refuse(canary)) {
                let version = plan.canary;
                // Staged versions are removed by the caller.
                return Err(NotStaged { version, reason });
            }
        }
        load.rollout = rollout;
        Ok(())
    }

    /// Loads one version while others serve, if `old` cannot go on serving with other settings. Returns what changed too.
    async fn stage_version(
        self: &Arc<Self>,
        name: &ModelName,
        version: Version,
        settings: &ModelSettings,
        old: Option<Arc<Loaded>>,
        priority: LoadPriority,
    ) -> Result<(StagedVersion, Vec<String>), String> {
        let lost = |lost: ThreadError| format!("{lost} while loading");
        let (catalog, model, settings) = (Arc::clone(self), name.clone(), settings.clone());
        let work = move || -> Result<(Read, Vec<String>), String> {
            let (planned, files) = catalog.plan(&model, version, &settings)?;
            let new = |planned: Planned| -> Result<Read, String> {
                let need = match files.format {
                    Format::Ensemble => Need::default(),
                    _ => catalog.memory_need(&planned, &files)?,
                };
                Ok(Read::New(Box::new((planned, files.clone(), need))))
            };
            let Some(old) = old else { return Ok((new(planned)?, Vec::new())) };
            let changes = old.config().changes(&planned.config, old.signature.max_batch);
            let mut told: Vec<String> = changes.iter().map(ToString::to_string).collect();
            if old.hash == planned.hash && changes.iter().all(|change| !change.needs_sessions) {
                if *old.labels() != planned.labels {
                    told.push("labels: read again".to_owned());
                }
                return Ok((Read::Same(old, Box::new(planned)), told));
            }
            if old.hash != planned.hash {
                told.push("files: changed".to_owned());
            }
            Ok((new(planned)?, told))
        };
        let (read, changes) = self.background.load(priority, work).await.map_err(lost)??;
        let staged = match read {
            Read::New(read) => {
                let (planned, files, need) = *read;
                if files.format == Format::Ensemble {
                    return Ok((StagedVersion::New(self.admit_ensemble(planned, &files)?), changes));
                }
                let memory = self.reserve_memory(name.as_str(), need).await?;
                let catalog = Arc::clone(self);
                let work = move || catalog.warm(planned, &files, memory);
                let warmed = self.background.load(priority, work).await.map_err(lost)??;
                StagedVersion::New(self.admit(warmed).await?)
            }
            // Settings may differ without a change to tell, such as a limit of rows that the model has anyway.
            Read::Same(old, planned) => {
                let differs = !changes.is_empty() || *old.config() != planned.config;
                StagedVersion::Same(old, differs.then_some(planned))
            }
        };
        Ok((staged, changes))
    }

    async fn commit(self: &Arc<Self>, load: StagedLoad) -> Committed {
        let StagedLoad { name, model, _control: control, before, versions, rollout, mut report, .. } = load;
        let mut after = BTreeMap::new();
        for (version, staged) in versions {
            let loaded = match staged {
                StagedVersion::New(loaded) => loaded,
                StagedVersion::Same(loaded, planned) => {
                    if let Some(planned) = planned {
                        self.take_up(&loaded, *planned).await;
                        let changes = &report.changes;
                        tracing::info!(model = %name, version, ?changes, "settings taken up");
                    }
                    loaded
                }
            };
            after.insert(version, loaded);
        }
        let after = Arc::new(after);
        // Before they serve, so that no canary gets more than its share.
        match &rollout {
            Some(plan) => self.roll_out(&model, plan, &after),
            None => model.rollouts.supersede(),
        }
        model.serving.store(Arc::clone(&after));
        let rejected = model.rollouts.rejected();
        model.keep_states(|version| after.contains_key(&version) || rejected.contains_key(&version));
        for &version in after.keys() {
            model.set(version, LoadState::Ready);
        }
        report.unloaded = before.keys().filter(|version| !after.contains_key(version)).copied().collect();
        let is_old = |(version, loaded): &(&u64, &Arc<Loaded>)| {
            after.get(version).is_none_or(|other| !Arc::ptr_eq(other, loaded))
        };
        let old = before.iter().filter(is_old).map(|(_, loaded)| Arc::clone(loaded)).collect();
        Committed { name: name.as_str().to_owned(), report, old, control }
    }

    async fn abandon(&self, load: StagedLoad) {
        for staged in load.versions.into_values() {
            if let StagedVersion::New(loaded) = staged {
                self.retire(&loaded).await;
            }
        }
        load.model.restore(load.states);
        self.source.overrides().restore(load.name.as_str(), load.replaced);
    }
}
