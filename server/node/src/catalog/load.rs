//! Loading, replacing and unloading.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use gpulet::LaneHandle;
use models::engine::Session;
use models::repository::QueuePolicy;
use models::{Dim, EffectiveConfig, ModelName, ModelSettings, Signature};
use oip::Datatype;
use router_core::{Class, LaneClass, ModelId, ModelSpec, ProfilePoint};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::activation::Activation;
use super::background::LoadPriority;
use super::overrides::{LoadParameters, Override};
use super::prepare::{First, Warmed};
use super::refusal_report::RefusalReport;
use super::sequences;
use super::shapes::Shapes;
use super::staging::{Files, LoadReport, Staging};
use super::statistics::Statistics;
use super::validation::Planned;
use super::version::{Loaded, Placed, Settings};
use super::{Catalog, LoadState, unknown_model};
use crate::batching;
use crate::metrics::{ModelLabels, ModelMetrics, family_ended, names};
use crate::reason::{Reason, Refusal};

/// A load that a client asked for, with a valid name and valid parameters.
pub struct CheckedLoad {
    name: ModelName,
    sent: Option<Arc<Override>>,
}

impl CheckedLoad {
    /// The model.
    pub const fn name(&self) -> &ModelName {
        &self.name
    }
}

impl Catalog {
    /// Loads a model, or reloads its changed versions. Changed settings that need no new sessions are taken up without
    /// loading. A configuration or files that a client sent before stay in force. Returns when it is ready. Until then, and
    /// on failure, the old versions keep serving.
    pub async fn load(self: &Arc<Self>, name: &str, priority: LoadPriority) -> Result<LoadReport, Refusal> {
        let settings = self.settings.load().get(name).cloned();
        self.load_from(Files::AsBefore, name, settings, priority).await
    }

    /// Checks the name and what the client sent, without a look at the repository.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check_load(&self, name: &str, sent: LoadParameters) -> Result<CheckedLoad, Refusal> {
        let name =
            ModelName::new(name).map_err(|error| Refusal::new(Reason::Malformed, error.to_string()))?;
        let sent = Override::new(&name, sent, self.source.is_strict())?.map(Arc::new);
        Ok(CheckedLoad { name, sent })
    }

    /// As [`Catalog::load`], with a table of settings, and with a configuration or files from the client. They hold until the
    /// next load or unload by a client; a load without them returns to the repository. If the load fails, those before it hold.
    pub async fn load_with(
        self: &Arc<Self>,
        load: CheckedLoad,
        settings: Option<ModelSettings>,
        priority: LoadPriority,
    ) -> Result<LoadReport, Refusal> {
        self.load_from(Files::Sent(load.sent), load.name.as_str(), settings, priority).await
    }

    async fn load_from(
        self: &Arc<Self>,
        files: Files,
        name: &str,
        settings: Option<ModelSettings>,
        priority: LoadPriority,
    ) -> Result<LoadReport, Refusal> {
        let members = match &files {
            Files::Sent(Some(sent)) => sent.config.members(),
            Files::Sent(None) | Files::AsBefore => self.source.members(name),
        };
        if let Err(refusal) = self.load_members(name, &members, priority).await {
            self.cannot_load(name, &refusal.message);
            return Err(refusal);
        }
        let mut staging = Staging::new(self).await;
        staging.add_from(files, name, settings.clone(), priority).await?;
        self.set_settings(name, settings.as_ref());
        Ok(staging.commit().await.remove(name).unwrap_or_default())
    }

    async fn load_members(
        self: &Arc<Self>,
        name: &str,
        members: &BTreeSet<String>,
        priority: LoadPriority,
    ) -> Result<(), Refusal> {
        for member in self.members_to_load(name, members)? {
            let settings = self.settings.load().get(&member).cloned();
            let mut staging = Staging::new(self).await;
            staging.add_from(Files::AsBefore, &member, settings, priority).await?;
            staging.commit().await;
        }
        Ok(())
    }

    /// Shows why a model is not loaded whose load did not begin.
    fn cannot_load(&self, name: &str, reason: &str) {
        metrics::counter!(names::LOAD_FAILURES.name, names::MODEL => name.to_owned()).increment(1);
        tracing::warn!(model = name, %reason, "cannot load");
        self.want(name, true);
        let model = Arc::clone(self.models.entry(name.to_owned()).or_default().value());
        if model.serving.load().is_empty() {
            model.set(0, LoadState::Unavailable(reason.to_owned()));
        }
    }

    /// Sets the tables of all models, for their next loads.
    pub fn set_all_settings(&self, settings: BTreeMap<String, ModelSettings>) {
        self.settings.store(Arc::new(settings));
    }

    /// Sets the table of one model. `None`: it has none.
    fn set_settings(&self, name: &str, settings: Option<&ModelSettings>) {
        self.settings.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            match settings {
                Some(settings) => all.insert(name.to_owned(), settings.clone()),
                None => all.remove(name),
            };
            all
        });
    }

    /// Applies settings that need no new sessions.
    pub(super) async fn take_up(&self, loaded: &Loaded, planned: Planned) {
        let Planned { config, labels, policy, rate_limit, .. } = planned;
        let queue_limit = self.limit_of(&config.queue);
        if loaded.ensemble.is_some() {
            loaded.settings.store(Arc::new(Settings { config: Arc::new(config), labels: Arc::new(labels) }));
            return;
        }
        loaded.activation.set_waiting_max(queue_limit);
        let spec = ModelSpec {
            model: loaded.id,
            max_batch: loaded.signature.max_batch.max(1),
            queue_limit,
            class_limits: self.class_limits(&config),
            rate_limit,
            policy,
            // These stay as they are.
            lanes: router_core::ModelLanes::All,
            profile: Vec::new(),
            measured_on: LaneClass::default(),
            preemptible: false,
        };
        self.environment.router.model_changed(spec).await;
        loaded.settings.store(Arc::new(Settings { config: Arc::new(config), labels: Arc::new(labels) }));
    }

    /// Handles of a version's metrics.
    pub(super) fn metrics_of(&self, config: &EffectiveConfig, version: u64) -> ModelMetrics {
        ModelMetrics::new(
            &ModelLabels { model: config.name.as_str(), version, tags: &config.metric_tags() },
            config.caches_responses(),
            self.environment.triton_names,
        )
    }

    fn limit_of(&self, queue: &QueuePolicy) -> u32 {
        queue.max_size.map_or(self.environment.queue_limit, NonZeroU32::get)
    }

    fn class_limits(&self, config: &EffectiveConfig) -> Vec<(Class, u32)> {
        let own = config.class_queues.iter();
        own.map(|(&class, queue)| (batching::class(class), self.limit_of(queue))).collect()
    }

    /// Installs the sessions and registers the model with the router, which may then dispatch its requests.
    pub(super) async fn admit(&self, warmed: Warmed) -> Result<Arc<Loaded>, String> {
        let Warmed { planned, first, sessions, load_time, memory } = warmed;
        let First { signature, engine, takes_requests, decoupled, measured, reference, padded, prepared } =
            first;
        let (padding, padded_times) = padded.unzip();
        let Planned { config, labels, policy, rate_limit, version, hash, file_bytes } = planned;
        let held = limit_of(&config, self.environment.queue_limit);
        let sequences = sequences::prepare(&config, &signature, sessions.len(), held)?;
        if takes_requests && sequences.is_some() {
            sequences::check_process(engine, sessions.len(), decoupled, self.environment.live)?;
        }
        if padding.is_some() && sequences.is_some() {
            let name = &config.name;
            return Err(format!(
                "models.{name}.batching.padding: is not supported with sequence_batching, remove one of them"
            ));
        }
        let signature = Arc::new(signature);
        let (client, sequences) = match sequences {
            Some(prepared) => (Arc::new(prepared.client), Some(prepared.model)),
            None => (Arc::clone(&signature), None),
        };
        let id = self.take_id();
        let measured_cores = sessions.first().map_or(1, |(lane, _)| lane.cores().len());
        let measured_on =
            sessions.first().map_or(LaneClass::default(), |(lane, _)| LaneClass(lane.lane_class()));
        // Gpulets of a live partition may be on other devices later.
        let interruptible = sessions.iter().all(|(_, session)| session.interrupt().is_some());
        let preemptible = interruptible && !self.environment.live;
        if policy.preempts().is_some() && !preemptible {
            let (model, policy) = (config.name.as_str(), policy.name());
            tracing::warn!(
                model,
                policy,
                engine,
                "its batches run to their end: the engine cannot stop them, so the policy cannot preempt"
            );
        }
        let mut lanes = Vec::with_capacity(sessions.len());
        let mut runs_on = Vec::with_capacity(sessions.len());
        for (lane, session) in sessions {
            match lane.install(id.0, session) {
                Ok(()) => {
                    runs_on.push(router_core::LaneId(lane.id()));
                    // Working memory for larger batches was measured and released.
                    lanes.push(Placed { lane, rows: 1, verified: false });
                }
                Err(error) => tracing::error!(lane = lane.id(), %error, "not installed"),
            }
        }
        if lanes.is_empty() {
            self.give_back_id(id);
            return Err("no lane that may run it is up".to_owned());
        }
        let name = config.name.as_str().to_owned();
        let queue_limit = self.limit_of(&config.queue);
        let spec = ModelSpec {
            measured_on,
            preemptible,
            model: id,
            max_batch: signature.max_batch.max(1),
            queue_limit,
            class_limits: self.class_limits(&config),
            rate_limit,
            policy,
            lanes: router_core::ModelLanes::Only(runs_on),
            profile: profile(&signature, &measured.times, &padded_times.unwrap_or_default()),
        };
        if let Some(sequences) = sequences {
            self.environment.router.sequences_up(id, sequences).await;
        }
        if !self.environment.router.model_up(spec).await {
            self.remove_sessions(id, lanes.into_iter().map(|placed| placed.lane)).await;
            self.give_back_id(id);
            return Err("the router takes no further model: unload one first".to_owned());
        }
        if self.environment.live {
            self.suspend_time_slices(lanes.iter().map(|placed| &placed.lane)).await;
        }
        let version = version.0;
        let activation = self.environment.activation.clone();
        let activation = activation.filter(|options| !options.only_variants || self.source.is_variant(&name));
        tracing::info!(model = %name, version, engine, max_batch = signature.max_batch, lanes = lanes.len(), "ready");
        Ok(Arc::new(Loaded {
            id,
            load: self.next_load(),
            caches: config.caches_responses() && self.response_cache().is_on(),
            metrics: self.metrics_of(&config, version),
            name,
            version,
            shapes: Shapes::new(&client),
            signature,
            client,
            settings: ArcSwap::from_pointee(Settings { config: Arc::new(config), labels: Arc::new(labels) }),
            hash,
            file_bytes,
            engine,
            takes_requests,
            decoupled,
            ensemble: None,
            lanes: Mutex::new(lanes),
            reference,
            prepared,
            padding,
            activation: Activation::new(activation, queue_limit),
            measured: measured.times,
            measured_shapes: measured.shapes,
            measured_cores: u32::try_from(measured_cores).unwrap_or(u32::MAX),
            load_time,
            memory: Mutex::new(memory),
            statistics: Statistics::default(),
            refusals: RefusalReport::default(),
            users: TaskTracker::new(),
        }))
    }

    /// Removes a version that gets no new requests, after its last request ended.
    pub(super) async fn retire(&self, loaded: &Loaded) {
        loaded.users.close();
        if loaded.config().sequences.is_some() {
            // Their next requests cannot arrive, so those that wait for them would wait for the idle time.
            self.environment.router.end_sequences(loaded.id).await;
        }
        loaded.users.wait().await;
        match &loaded.ensemble {
            Some(ensemble) => match &ensemble.family {
                Some(family) => {
                    self.environment.router.family_down(family.id).await;
                    family_ended(&loaded.name);
                }
                None => self.environment.router.pipeline_down(ensemble.pipeline).await,
            },
            None => self.environment.router.model_down(loaded.id).await,
        }
        self.remove_sessions(loaded.id, loaded.lanes()).await;
        self.forget_warm(loaded.id).await;
        loaded.release_memory();
        self.response_cache().forget(loaded.load);
        self.give_back_id(loaded.id);
        tracing::info!(model = %loaded.name, version = loaded.version, "unloaded");
    }

    /// Takes the sessions from their lanes and drops them.
    async fn remove_sessions(&self, id: ModelId, lanes: impl IntoIterator<Item = LaneHandle>) {
        let mut sessions = Vec::new();
        for lane in lanes {
            sessions.extend(taken_off(id, &lane).await);
        }
        self.drop_in_background(sessions).await;
    }

    /// Unloads every version of a model.
    pub async fn unload(self: &Arc<Self>, name: &str) -> Result<(), Refusal> {
        let Some(model) = self.models.get(name).map(|entry| Arc::clone(entry.value())) else {
            return if self.source.names()?.contains_key(name) { Ok(()) } else { Err(unknown_model(name)) };
        };
        let _layout = self.changing.read().await;
        let _control = model.control.lock().await;
        self.want(name, false);
        self.forget_evicted(name);
        model.rollouts.forget_rejected();
        let serving = model.serving.swap(Arc::default());
        model.rollouts.supersede();
        for &version in serving.keys() {
            model.set(version, LoadState::Unloading);
        }
        for (&version, loaded) in serving.iter() {
            self.retire(loaded).await;
            model.set(version, LoadState::Unavailable("unloaded".to_owned()));
        }
        self.source.overrides().replace(name, None)?;
        Ok(())
    }
}

/// Most queued requests of a model.
pub(super) fn limit_of(config: &EffectiveConfig, default: u32) -> u32 {
    config.queue.max_size.map_or(default, NonZeroU32::get)
}

/// Removes a session from a lane, if it has one.
pub(super) async fn taken_off(id: ModelId, lane: &LaneHandle) -> Option<Box<dyn Session>> {
    let (give, given) = oneshot::channel();
    // If the receiver is dropped, the lane drops the session.
    lane.remove(id.0, move |session| drop(give.send(session))).ok()?;
    given.await.ok().flatten()
}

/// Batch times for the router before any batch ran.
fn profile(
    signature: &Signature,
    measured: &[(u32, Duration)],
    padded: &[(u32, u64, Duration)],
) -> Vec<ProfilePoint> {
    let Some(row_bytes) = row_bytes(signature) else {
        let point =
            |&(rows, row_bytes, time): &_| ProfilePoint { rows, row_bytes, time: Duration::into(time) };
        return padded.iter().map(point).collect();
    };
    let point = |&(rows, time): &(u32, Duration)| ProfilePoint { rows, row_bytes, time: time.into() };
    measured.iter().map(point).collect()
}

/// Input bytes of a row, if the signature fixes them. With free shapes, the batch time at one shape says nothing about
/// others, so synthetic measurements are not used.
pub fn row_bytes(signature: &Signature) -> Option<u64> {
    let batched = usize::from(signature.max_batch > 0);
    signature.inputs.iter().try_fold(0_u64, |sum, input| {
        let size = input.datatype.size().filter(|_| input.datatype != Datatype::Bytes)? as u64;
        let elements = input.dims.iter().skip(batched).try_fold(1_u64, |product, dim| match dim {
            Dim::Fixed(extent) => product.checked_mul(*extent),
            Dim::Free => None,
        })?;
        sum.checked_add(size.checked_mul(elements)?)
    })
}
