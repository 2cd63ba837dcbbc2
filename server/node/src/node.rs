//! A node: loads models and runs them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use gpulet::LaneHandle;
use models::Loader;
use models::engine::ort::{OrtLibrary, OrtMissing};
use models::engine::python::HostSlot;
use oip::metadata::RepositoryIndexRow;
use router::RouterOptions;
use router_core::{Protect, RouterConfig};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use units::PercentileLimit;

use crate::catalog::{
    ActivationOptions, Catalog, Environment, LoadPriority, ModelGauges, RolloutView, ServedFamily, Source,
};
use crate::config::{Config, ConfigSource, Isolation, LoadMode, Partition};
use crate::control::{Control, ControlSetup};
use crate::devices::Devices;
use crate::in_force::InForce;
use crate::metrics::{
    GatherMetrics, LaneMetrics, MachineMetrics, ViolationMetrics, WatchedGpu, configuration_started,
    family_level, telemetry_sent,
};
use crate::objectives;
use crate::rate_limits::Resources;
use crate::reason::{Reason, Refusal};
use crate::request_log::{RequestLog, Spans};
use crate::supervisor::{self, Failures, Supervisor, SupervisorSetup};
use crate::tenants::Tenants;

/// Arguments of [`Node::start`].
pub struct Startup {
    /// The configuration.
    pub config: Config,
    /// Core sets, one per lane.
    pub lanes: Vec<Vec<usize>>,
    /// Where the configuration came from, to read it again.
    pub config_source: ConfigSource,
    /// Traces of requests. `None`: requests are not traced.
    pub spans: Option<Spans>,
    /// ONNX Runtime, or where it was searched for.
    pub ort: Result<OrtLibrary, OrtMissing>,
}

/// Models that are named when the server is not ready; the rest are counted.
const MODELS_NAMED: usize = 8;

/// The router, the devices and their lanes, and the models that run on them.
pub struct Node {
    catalog: Arc<Catalog>,
    load_mode: LoadMode,
    strict_readiness: bool,
    /// Set when every model for the start was loaded or failed.
    started: AtomicBool,
    stopping: AtomicBool,
    devices: Arc<Devices>,
    supervisor: Supervisor,
    failures: Failures,
    /// The lanes of the start. Stopped with the node.
    lanes: Vec<LaneHandle>,
    lane_metrics: Vec<LaneMetrics>,
    violations: Mutex<ViolationMetrics>,
    gauges: Mutex<ModelGauges>,
    /// With `metrics.triton_names`.
    machine: Option<Mutex<MachineMetrics>>,
    partition: Partition,
    /// How much longer best-effort work may make other requests.
    pub protect: Option<PercentileLimit>,
    /// The configuration that is in force: that of the start, with what reloads took up.
    pub(crate) in_force: Arc<Mutex<InForce>>,
    /// Loads and unloads of single models take it for reading, a reload of the configuration for writing.
    pub(crate) reloading: Arc<tokio::sync::RwLock<()>>,
    pub(crate) config_source: ConfigSource,
    model_host: HostSlot,
    /// With `fleet.batch_marks`.
    gathered: Option<GatherMetrics>,
    requests: RequestLog,
    control: OnceLock<Control>,
    stop_control: CancellationToken,
}

impl Node {
    /// Starts the router and the lanes. Models come with [`Node::load_at_start`].
    pub async fn start(startup: Startup) -> anyhow::Result<Self> {
        let Startup { config, lanes: core_sets, ort, spans, config_source } = startup;
        let limits = &config.limits;
        let live = config.partition.live;
        let loader = Loader::new(ort);
        let model_host = loader.host.clone();
        let devices = Arc::new(Devices::of(&config, &core_sets, loader)?);
        let lanes_max = devices.lanes_max(live);
        let resources = Resources::new(&config.rate_limit);
        let tenants = Tenants::new(&config).map_err(anyhow::Error::msg)?;
        let core = RouterConfig {
            queued_bytes_limit: limits.queue_bytes.0,
            max_lanes: lanes_max,
            margin: objectives::MARGIN,
            resources: resources.totals(),
            records: config.request_log.kept,
            tenants: tenants.table(),
            protect: config
                .best_effort
                .protect
                .map(|limit| Protect { percentile: limit.percentile, factor: limit.factor }),
            ..RouterConfig::default()
        };
        let gather_wait = config.fleet.batch_wait.0;
        let router = router::start(&RouterOptions { mailbox: limits.mailbox.get(), gather_wait, core })?;
        let failures = supervisor::failures();
        let mut lanes = Vec::with_capacity(devices.start().len());
        for (id, share) in (0..).zip(devices.start()) {
            let lane = devices.open(id, share, router.lane_sink(), failures.0.watch())?;
            router.lane_up(lane.clone()).await;
            lanes.push(lane);
        }
        let requests = RequestLog::new(&config.request_log, tenants.request_names(), spans)
            .map_err(anyhow::Error::msg)?;
        let source = Source::connect(&config.repository).await?;
        let source = source.with_pipelines(config.pipelines.clone()).map_err(anyhow::Error::msg)?;
        let source = source.with_families(config.families.clone()).map_err(anyhow::Error::msg)?;
        let names = source.names().map_err(|refusal| anyhow::anyhow!(refusal.message))?;
        config.check_models(names.keys().map(String::as_str))?;
        let environment = Environment {
            router,
            lanes: lanes.clone(),
            idle_lanes: devices.idle_lanes(),
            live,
            activation: activation_of(&config.partition).filter(|_| live),
            verify: live || config.devices.isolation == Isolation::Process,
            warm_pool: config.partition.warm_pool,
            model_memory: limits.model_memory.map(|size| size.0),
            engine: config.repository.engine.parse()?,
            queue_limit: u32::try_from(limits.queue.get()).unwrap_or(u32::MAX),
            cache_bytes: config.cache.max_bytes.0,
            triton_names: config.metrics.triton_names,
            resources,
            tenants,
            profiles: devices.profiles().to_vec(),
        };
        let catalog = Arc::new(Catalog::new(source, environment, config.models.clone()));
        let stop_control = CancellationToken::new();
        let returns = stop_control.clone().run_until_cancelled_owned(Arc::clone(&catalog).return_evicted());
        tokio::spawn(returns);
        let (watch, supervised) = (failures.0.clone(), Arc::clone(&catalog));
        let setup = SupervisorSetup { catalog: supervised, devices: Arc::clone(&devices), live };
        configuration_started();
        let supervisor = Supervisor::start(setup, failures, stop_control.clone())?;
        Ok(Self {
            catalog,
            supervisor,
            failures: watch,
            load_mode: config.repository.load,
            strict_readiness: config.server.strict_readiness,
            started: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            violations: Mutex::default(),
            gauges: Mutex::default(),
            machine: config.metrics.triton_names.then(Mutex::default),
            gathered: config.fleet.batch_marks.then(GatherMetrics::new),
            lane_metrics: (0..lanes_max).map(LaneMetrics::new).collect(),
            lanes,
            devices,
            partition: config.partition.clone(),
            protect: config.best_effort.protect,
            in_force: Arc::new(Mutex::new(InForce::new(config))),
            reloading: Arc::default(),
            config_source,
            model_host,
            requests,
            control: OnceLock::new(),
            stop_control,
        })
    }

    /// Loads the models for the start, as many at a time as there are lanes. A model that fails is logged and keeps the
    /// server not ready until it loads or is unloaded. The others serve.
    pub async fn load_at_start(&self) {
        if self.load_mode == LoadMode::All {
            let permits = Arc::new(Semaphore::new(self.lanes.len().max(1)));
            let mut loads = JoinSet::new();
            for name in self.catalog.names_at_start() {
                let (catalog, permits) = (Arc::clone(&self.catalog), Arc::clone(&permits));
                loads.spawn(async move {
                    let _permit = permits.acquire().await;
                    // A failure is logged and shown in the index.
                    let _ = catalog.load(&name, LoadPriority::Startup).await;
                });
            }
            while loads.join_next().await.is_some() {}
        }
        self.started.store(true, Ordering::SeqCst);
    }

    /// Lets gpulets follow the load, if configured.
    ///
    /// # Errors
    /// What is wrong with `[partition]`.
    pub fn start_control(&self) -> anyhow::Result<()> {
        if !self.partition.live {
            return Ok(());
        }
        let setup = ControlSetup {
            options: self.partition.clone(),
            catalog: Arc::clone(&self.catalog),
            devices: Arc::clone(&self.devices),
            failures: self.failures.clone(),
            lanes: self.lanes.clone(),
        };
        let control = Control::start(setup, self.stop_control.clone())?;
        // It is started only once.
        let _ = self.control.set(control);
        Ok(())
    }

    /// The supervisor of the lanes.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Place for what Python models call.
    pub fn model_host(&self) -> &HostSlot {
        &self.model_host
    }

    /// The last requests.
    pub fn requests(&self) -> &RequestLog {
        &self.requests
    }

    /// The lanes of the start.
    pub fn lanes(&self) -> &[LaneHandle] {
        &self.lanes
    }

    /// The devices that models run on.
    pub fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// The models.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The control loop that moves gpulets.
    ///
    /// # Errors
    /// If it is disabled, or the server is starting.
    pub fn control(&self) -> Result<&Control, Refusal> {
        self.control.get().ok_or_else(|| {
            let message = if self.partition.live {
                "gpulets follow the load once the models are loaded: ask again"
            } else {
                "gpulets are fixed: set `partition.live = true` to let them follow the load"
            };
            Refusal::new(Reason::Unsupported, message)
        })
    }

    /// Rejects queued requests, waits for running ones, and stops the lanes.
    pub async fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.stop_control.cancel();
        self.catalog.router().drain(Instant::now()).await;
        for lane in self.catalog.lanes().iter().chain(&self.lanes) {
            // It may have stopped already.
            let _ = lane.stop();
        }
    }

    /// True while the process serves (drain included).
    pub fn live(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    /// Why the server is not ready; `None` when it is. With `server.strict_readiness` off, loading and failed models
    /// do not count.
    pub fn not_ready(&self) -> Option<String> {
        if !self.live() {
            return Some("the server is stopping".to_owned());
        }
        if !self.strict_readiness {
            return None;
        }
        let models = self.catalog.not_ready();
        let more = models.len().saturating_sub(MODELS_NAMED);
        let mut reasons: Vec<String> = models.into_iter().take(MODELS_NAMED).collect();
        if more > 0 {
            reasons.push(format!("{more} more models are not ready"));
        }
        if reasons.is_empty() && !self.started.load(Ordering::SeqCst) {
            reasons.push("the server is starting".to_owned());
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Models in the repository and those loaded, sorted by name then version.
    pub fn index(&self, only_ready: bool) -> Vec<RepositoryIndexRow> {
        self.catalog.index(only_ready)
    }

    /// Unloads a model: no new requests, queued ones finish, and its memory is released.
    pub async fn unload(&self, name: &str) -> Result<(), Refusal> {
        let (catalog, name) = (Arc::clone(&self.catalog), name.to_owned());
        // A reload loads all models that are wanted when it begins.
        let no_reload = Arc::clone(&self.reloading).read_owned().await;
        detached(async move {
            let _no_reload = no_reload;
            catalog.unload(&name).await
        })
        .await
    }

    /// Promotes the canary of a model's roll-out now, or rolls it back. Returns when the other version serves all requests.
    ///
    /// # Errors
    /// The model is unknown, or is not being rolled out.
    pub async fn end_rollout(&self, name: &str, promote: bool) -> Result<RolloutView, Refusal> {
        let (catalog, name) = (Arc::clone(&self.catalog), name.to_owned());
        detached(async move { catalog.end_rollout(&name, promote).await }).await
    }

    /// GPUs that models run on.
    pub fn gpus(&self) -> Vec<WatchedGpu> {
        self.devices.gpus().to_vec()
    }

    /// Whether models run on GPUs.
    pub fn has_gpus(&self) -> bool {
        !self.devices.gpus().is_empty()
    }

    /// Updates the gauges of queues and lanes, the device time of tenants, and the counters of violated invariants, and logs
    /// violations.
    pub async fn refresh_gauges(&self) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).update(Instant::now());
        if let Some(machine) = &self.machine {
            machine.lock().unwrap_or_else(PoisonError::into_inner).update();
        }
        if let Some(spans) = self.requests.spans() {
            telemetry_sent(spans.exporter.statistics());
        }
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner).update(&self.catalog);
        if let Some(gathered) = &self.gathered
            && let Some(counts) = self.catalog.router().gather_counts().await
        {
            gathered.update(counts);
        }
        let Some(snapshot) = self.catalog.router().snapshot().await else { return };
        self.catalog.tenants().used(&snapshot.tenants);
        if let Some(share) = snapshot.best_effort_share {
            metrics::gauge!(crate::metrics::names::BEST_EFFORT_SHARE.name).set(share);
        }
        for loaded in self.catalog.serving_names().iter().flat_map(|name| self.catalog.serving(name)) {
            let queued =
                snapshot.models.iter().find(|model| model.model == loaded.id).map_or(0, |model| model.queued);
            loaded.report_refusals(Instant::now());
            loaded.metrics.queue_depth(usize::try_from(queued).unwrap_or(usize::MAX));
            let family = loaded.ensemble.as_ref().and_then(|served| served.family.as_ref());
            let of = |family: &ServedFamily| snapshot.families.iter().find(|one| one.family == family.id);
            if let Some(state) = family.and_then(of) {
                family_level(&loaded.name, state);
            }
        }
        let planned: BTreeSet<u32> = self.catalog.lanes().iter().map(LaneHandle::id).collect();
        for (id, metrics) in (0..).zip(&self.lane_metrics) {
            let lane = snapshot.lanes.iter().find(|lane| lane.lane.0 == id);
            metrics.busy(lane.is_some_and(|lane| lane.holding > 0));
            if self.partition.live {
                metrics.up(planned.contains(&id));
            }
        }
    }
}

/// How versions get a lane again; none if all of them keep one.
fn activation_of(partition: &Partition) -> Option<ActivationOptions> {
    let any = partition.idle.is_some() || partition.variants.is_some();
    any.then(|| ActivationOptions {
        wanted: Arc::default(),
        timeout: partition.prepare_timeout.0,
        only_variants: partition.idle.is_none(),
    })
}

pub(crate) async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|error| {
        Err(Refusal::new(Reason::Internal, format!("model control ended early: {error}")))
    })
}
