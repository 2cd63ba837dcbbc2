//! The models of this process: loading, replacing, unloading and finding them.
//!
//! A model is loaded, warmed up and measured while others serve, and replaces its old version in one step. The old
//! version answers the requests that it accepted and is dropped. Requests hold a token of the version they use, so a
//! version is removed from the router only after the last of them ended: a reload fails no request.

mod activation;
mod background;
mod ensembles;
mod evicted;
mod families;
mod gauges;
pub mod latencies;
mod load;
mod memory;
mod overrides;
mod pipelines;
mod prepare;
mod quality;
mod refusal_report;
mod remote;
mod response_cache;
mod rollouts;
mod selection;
mod sequences;
mod served_ensemble;
mod sessions;
mod shapes;
mod source;
mod stages;
mod staging;
mod statistics;
pub mod submit;
mod validation;
mod version;
mod votes;
mod warm;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use dashmap::DashMap;
use gpulet::LaneHandle;
use gpulet_core::profile::Profile;
use models::{EngineChoice, ModelSettings, Version};
use oip::metadata::RepositoryIndexRow;
use router::RouterHandle;
use router_core::{ModelId, Tenant};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::rate_limits::Resources;
use crate::reason::{Reason, Refusal};
use crate::tenants::Tenants;
use background::BackgroundLoads;
use memory::ModelMemory;
use rollouts::ModelRollouts;
use warm::WarmSessions;

pub use activation::ActivationOptions;
pub use background::LoadPriority;
pub use ensembles::ENSEMBLE;
pub use families::ServedFamily;
pub use gauges::ModelGauges;
pub use load::row_bytes;
pub use overrides::LoadParameters;
pub use quality::{CLASSES_MAX, ClassAccuracy, QUALITY_FILE, Quality, QualityKind};
pub use remote::SourceError;
pub use response_cache::{CacheKey, ResponseCache, key as cache_key};
pub use rollouts::{Mirror, RolloutState, RolloutView, Trial, VersionView};
pub use served_ensemble::ServedEnsemble;
pub use sessions::ModelsHeld;
pub use shapes::Counts as ShapeCounts;
pub use source::Source;
pub use staging::{LoadReport, Staging};
pub use statistics::LaneBatches;
pub use validation::{Checks, Finding, Planned, Severity};
pub use version::Loaded;
pub use votes::{ServedVote, ServedVoter, voter};
pub use warm::{Ready, WarmPoolCounts};

/// What a load needs besides the model's files.
pub struct Environment {
    /// The router's actor.
    pub router: RouterHandle,
    /// Lanes by number, as the server starts.
    pub lanes: Vec<LaneHandle>,
    /// The lane of idle priority on the units of each other lane: best-effort models run there. Empty without such lanes.
    pub idle_lanes: BTreeMap<u32, u32>,
    /// Whether lanes come and go with the load.
    pub live: bool,
    /// Whether serving versions get further sessions, which are compared with the first one.
    pub verify: bool,
    /// How versions without a lane get one again. None if they always keep a lane.
    pub activation: Option<ActivationOptions>,
    /// Engine of models that do not name one.
    pub engine: EngineChoice,
    /// Most sessions in the warm pool.
    pub warm_pool: usize,
    /// Bytes of all models together; `None`: no limit.
    pub model_memory: Option<u64>,
    /// Queue limit of models that do not set one.
    pub queue_limit: u32,
    /// Bytes of the response cache; 0: none.
    pub cache_bytes: u64,
    /// Whether to keep Triton's metric names too.
    pub triton_names: bool,
    /// Resources of the rate limiter.
    pub resources: Resources,
    /// Tenants of requests.
    pub tenants: Tenants,
    /// Profiles of models.
    pub profiles: Vec<Profile>,
}

/// The version that a request gets.
pub struct Held {
    /// The version.
    pub loaded: Arc<Loaded>,
    /// Counts the request, if it is part of a roll-out.
    pub trial: Option<Trial>,
    /// Keeps the version in the router until the request has ended.
    pub user: TaskTrackerToken,
}

/// State of a version, in the words of the repository extension.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LoadState {
    Ready,
    Loading,
    Unloading,
    Unavailable(String),
}

impl LoadState {
    fn word(&self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Loading => "LOADING",
            Self::Unloading => "UNLOADING",
            Self::Unavailable(_) => "UNAVAILABLE",
        }
    }

    fn reason(&self) -> String {
        match self {
            Self::Unavailable(reason) => reason.clone(),
            Self::Ready | Self::Loading | Self::Unloading => String::new(),
        }
    }
}

/// One model name.
#[derive(Default)]
struct Model {
    /// Versions that take requests, by number. Without a roll-out, the last one is the default.
    serving: ArcSwap<BTreeMap<u64, Arc<Loaded>>>,
    /// States for the index. Version 0 stands for the whole model.
    states: Mutex<BTreeMap<u64, LoadState>>,
    /// One load or unload at a time.
    control: Arc<tokio::sync::Mutex<()>>,
    rollouts: ModelRollouts,
}

impl Model {
    /// The version of requests that name none, but for the share of a canary.
    fn default_version(&self) -> Option<Arc<Loaded>> {
        if let Some(rollout) = &*self.rollouts.active.load() {
            return Some(Arc::clone(rollout.stable()));
        }
        self.serving.load().last_key_value().map(|(_, loaded)| Arc::clone(loaded))
    }

    fn set(&self, version: u64, state: LoadState) {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).insert(version, state);
    }

    fn keep_states(&self, keep: impl Fn(u64) -> bool) {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).retain(|version, _| keep(*version));
    }

    fn restore(&self, states: BTreeMap<u64, LoadState>) {
        *self.states.lock().unwrap_or_else(PoisonError::into_inner) = states;
    }

    fn states(&self) -> BTreeMap<u64, LoadState> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All models.
pub struct Catalog {
    source: Source,
    environment: Environment,
    /// `[models.NAME]` tables, for the next load of each model.
    settings: ArcSwap<BTreeMap<String, ModelSettings>>,
    models: DashMap<String, Arc<Model>>,
    /// Models that must be ready for the server to be ready: requested and not unloaded.
    wanted: Mutex<BTreeSet<String>>,
    ids: Mutex<Ids>,
    /// Loads so far.
    loads: AtomicU64,
    background: BackgroundLoads,
    warm: WarmSessions,
    /// None without a limit.
    memory: Option<ModelMemory>,
    response_cache: ResponseCache,
    /// Lanes that take batches, by number.
    layout: ArcSwap<Vec<LaneHandle>>,
    /// Loads take it for reading, lane changes for writing: a version has sessions on all of its lanes or on none.
    changing: Arc<tokio::sync::RwLock<()>>,
}

/// Numbers for loaded versions, smallest free one first.
#[derive(Default)]
struct Ids {
    next: u32,
    free: BTreeSet<u32>,
}

impl Ids {
    fn take(&mut self) -> ModelId {
        ModelId(self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        }))
    }
}

impl Catalog {
    /// A catalog with nothing loaded. `settings`: the `[models.NAME]` tables.
    pub fn new(source: Source, environment: Environment, settings: BTreeMap<String, ModelSettings>) -> Self {
        let settings = ArcSwap::from_pointee(settings);
        let (wanted, ids) = (Mutex::default(), Mutex::default());
        let background = BackgroundLoads::new(&environment.lanes);
        let layout = ArcSwap::from_pointee(environment.lanes.clone());
        let warm = WarmSessions::new(environment.warm_pool);
        let memory = environment.model_memory.map(ModelMemory::new);
        let (models, changing, loads) = (DashMap::new(), Arc::default(), AtomicU64::new(0));
        let response_cache = ResponseCache::new(environment.cache_bytes);
        Self {
            source,
            environment,
            settings,
            models,
            wanted,
            ids,
            loads,
            background,
            warm,
            memory,
            response_cache,
            layout,
            changing,
        }
    }

    /// The router that runs what is loaded.
    pub fn router(&self) -> &RouterHandle {
        &self.environment.router
    }

    /// Tenants of requests.
    pub fn tenants(&self) -> &Tenants {
        &self.environment.tenants
    }

    /// Answers of earlier requests.
    pub fn response_cache(&self) -> &ResponseCache {
        &self.response_cache
    }

    fn next_load(&self) -> u64 {
        self.loads.fetch_add(1, Ordering::Relaxed)
    }

    fn take_id(&self) -> ModelId {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn give_back_id(&self, id: ModelId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).free.insert(id.0);
    }

    /// A version of a model; if none is named, the one that most requests without a version get.
    ///
    /// # Errors
    /// The model or the version is not served.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<Arc<Loaded>, Refusal> {
        let model = self.model(name)?;
        match version {
            None => model.default_version().ok_or_else(|| not_serving(name, &model)),
            Some(version) => find_version(name, &model, version),
        }
    }

    /// The version that a request of a tenant gets, held until the end of the request.
    ///
    /// # Errors
    /// The model or the version is not served.
    pub fn hold(&self, name: &str, version: Option<&str>, tenant: Tenant) -> Result<Held, Refusal> {
        let model = self.model(name)?;
        let choose = || -> Result<(Arc<Loaded>, Option<Trial>), Refusal> {
            if let Some(version) = version {
                return Ok((find_version(name, &model, version)?, None));
            }
            if let Some(rollout) = &*model.rollouts.active.load() {
                let (loaded, trial) = Trial::next(rollout, tenant);
                return Ok((loaded, Some(trial)));
            }
            let default = model.default_version();
            Ok((default.ok_or_else(|| not_serving(name, &model))?, None))
        };
        let (mut loaded, mut trial) = choose()?;
        if loaded.hold().is_none() {
            // It was replaced just now; its successor is serving.
            trial.into_iter().for_each(Trial::disregard);
            (loaded, trial) = choose()?;
        }
        match loaded.hold() {
            Some(user) => Ok(Held { loaded, trial, user }),
            None => {
                trial.into_iter().for_each(Trial::disregard);
                Err(being_changed(name))
            }
        }
    }

    fn model(&self, name: &str) -> Result<Arc<Model>, Refusal> {
        let model = self.models.get(name).map(|entry| Arc::clone(entry.value()));
        model.ok_or_else(|| unknown_model(name))
    }

    /// Every model of the repository. All of them must be ready from now on.
    pub fn names_at_start(&self) -> Vec<String> {
        let names: Vec<_> = self.source.names().unwrap_or_default().into_keys().collect();
        names.iter().for_each(|name| self.want(name, true));
        names
    }

    /// Versions of a model that take requests, smallest first.
    pub fn serving(&self, name: &str) -> Vec<Arc<Loaded>> {
        let serving = self.models.get(name).map(|model| model.serving.load_full());
        serving.map(|serving| serving.values().cloned().collect()).unwrap_or_default()
    }

    /// Names with at least one version that takes requests, sorted.
    pub fn serving_names(&self) -> Vec<String> {
        let serving = self.models.iter().filter(|model| !model.serving.load().is_empty());
        let mut names: Vec<_> = serving.map(|model| model.key().clone()).collect();
        names.sort_unstable();
        names
    }

    /// Why each model that should be ready is not; empty when all are.
    pub fn not_ready(&self) -> Vec<String> {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.iter().filter_map(|name| self.why_not_ready(name)).collect()
    }

    /// Whether a model serves on a lane, or is activated by its next request.
    pub fn is_ready(&self, name: &str) -> bool {
        self.why_not_ready(name).is_none()
    }

    fn why_not_ready(&self, name: &str) -> Option<String> {
        let Some(model) = self.models.get(name) else {
            return Some(format!("model `{name}` is not loaded yet"));
        };
        let serving = model.serving.load();
        if serving.is_empty() {
            return Some(not_serving(name, &model).message);
        }
        let has_lane = serving.values().all(|loaded| match &loaded.ensemble {
            Some(served) => served.ensemble.models().into_iter().all(|member| self.is_ready(member)),
            None => loaded.has_lane() || !loaded.activation.is_active(),
        });
        (!has_lane).then(|| format!("model `{name}` has no lane to run on"))
    }

    /// Copies a repository at a URL again, if it changed.
    ///
    /// # Errors
    /// Why that failed. What was copied before stays in use.
    pub async fn refresh_source(&self) -> Result<(), SourceError> {
        self.source.refresh().await
    }

    /// Names of the models in the repository.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn known_names(&self) -> Result<Vec<String>, Refusal> {
        Ok(self.source.names()?.into_keys().collect())
    }

    /// Models that should be ready: requested and not unloaded.
    pub fn wanted_names(&self) -> Vec<String> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn want(&self, name: &str, wanted: bool) {
        let mut names = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted {
            names.insert(name.to_owned());
        } else {
            names.remove(name);
        }
    }

    /// The repository's models and those that were loaded from it, sorted by name, then version.
    pub fn index(&self, only_ready: bool) -> Vec<RepositoryIndexRow> {
        let mut rows = BTreeMap::new();
        for (name, versions) in self.source.names().unwrap_or_default() {
            for version in versions {
                rows.insert((name.clone(), version), LoadState::Unavailable("not loaded".to_owned()));
            }
        }
        for model in &self.models {
            let mut states = model.states();
            // Before a model's versions are known, its state is that of all the repository has.
            if let Some(whole) = states.remove(&0) {
                let versions = (model.key().clone(), 0)..=(model.key().clone(), u64::MAX);
                let mut rows_of_model = rows.range_mut(versions).peekable();
                if rows_of_model.peek().is_some() {
                    rows_of_model.for_each(|(_, state)| *state = whole.clone());
                } else {
                    drop(rows_of_model);
                    rows.insert((model.key().clone(), 0), whole);
                }
            }
            for (version, state) in states {
                rows.insert((model.key().clone(), version), state);
            }
        }
        let row = |((name, version), state): ((String, u64), LoadState)| RepositoryIndexRow {
            name,
            version: if version == 0 { String::new() } else { version.to_string() },
            state: state.word().to_owned(),
            reason: state.reason(),
        };
        let shown = |(_, state): &(_, LoadState)| !only_ready || *state == LoadState::Ready;
        rows.into_iter().filter(shown).map(row).collect()
    }
}

fn find_version(name: &str, model: &Model, version: &str) -> Result<Arc<Loaded>, Refusal> {
    let serving = model.serving.load();
    let found = Version::parse(version).and_then(|Version(number)| serving.get(&number)).map(Arc::clone);
    found.ok_or_else(|| {
        if serving.is_empty() {
            return not_serving(name, model);
        }
        let ready: Vec<_> = serving.keys().map(u64::to_string).collect();
        let shown: String = version.chars().take(32).collect();
        let message = format!("model `{name}`: unknown version `{shown}`, ready are {}", ready.join(", "));
        Refusal::new(Reason::UnknownVersion, message)
    })
}

fn unknown_model(name: &str) -> Refusal {
    let shown: String = name.chars().take(128).collect();
    Refusal::new(
        Reason::UnknownModel,
        format!("unknown model `{shown}`: the repository index lists those there are"),
    )
}

fn being_changed(name: &str) -> Refusal {
    Refusal::new(Reason::ModelNotReady, format!("model `{name}` is being loaded or unloaded"))
}

fn not_serving(name: &str, model: &Model) -> Refusal {
    let states = model.states();
    if states.values().any(|state| matches!(state, LoadState::Loading | LoadState::Unloading)) {
        return being_changed(name);
    }
    let why = states.values().map(LoadState::reason).find(|reason| !reason.is_empty());
    let why = why.unwrap_or_else(|| "it was not asked for".to_owned());
    Refusal::new(Reason::UnknownModel, format!("model `{name}` is not loaded: {why}"))
}
