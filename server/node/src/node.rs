//! A node: the router, the devices with their lanes, and the models that run on them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use gpulet::LaneHandle;
use models::Loader;
use models::engine::ort::{OrtLibrary, OrtMissing};
use models::repository::Repository;
use router::RouterOptions;
use router_core::{Nanos, RouterConfig};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::catalog::{Catalog, Environment, Haste, IndexRow, Source, Waking};
use crate::config::{Config, Isolation, LoadMode, Partition};
use crate::control::{Control, ControlSetup};
use crate::devices::Devices;
use crate::metrics::{LaneMetrics, ViolationMetrics, WatchedGpu};
use crate::reason::{Reason, Refusal};
use crate::supervisor::{self, Losses, Supervisor, SupervisorSetup};

/// What a node is started with.
pub struct Startup {
    /// Everything configured.
    pub config: Config,
    /// Core sets, one a lane.
    pub lanes: Vec<Vec<usize>>,
    /// ONNX Runtime, or where it was looked for.
    pub ort: Result<OrtLibrary, OrtMissing>,
}

/// Loads models and runs them.
pub struct Node {
    catalog: Arc<Catalog>,
    load_mode: LoadMode,
    /// Set once everything that is loaded at start was tried.
    started: AtomicBool,
    stopping: AtomicBool,
    devices: Arc<Devices>,
    supervisor: Supervisor,
    losses: Losses,
    /// The lanes that it started with; told to end when it stops.
    lanes: Vec<LaneHandle>,
    lane_metrics: Vec<LaneMetrics>,
    violations: Mutex<ViolationMetrics>,
    partition: Partition,
    control: OnceLock<Control>,
    stop_control: CancellationToken,
}

/// The runtime's timers are a millisecond coarse, and the thread that is woken may find its core taken.
pub const MARGIN: Nanos = Nanos::from_millis(2);

impl Node {
    /// Starts the router and the lanes. Models come with [`Node::load_at_start`].
    pub async fn start(startup: Startup) -> anyhow::Result<Self> {
        let Startup { config, lanes: core_sets, ort } = startup;
        let limits = &config.limits;
        let live = config.partition.live;
        let devices = Arc::new(Devices::of(&config, &core_sets, Loader::new(ort))?);
        let lanes_max = devices.lanes_max(live);
        let core = RouterConfig {
            queued_bytes_limit: limits.queue_bytes.0,
            max_lanes: lanes_max,
            margin: MARGIN,
            ..RouterConfig::default()
        };
        let router = router::start(&RouterOptions { mailbox: limits.mailbox.get(), core })?;
        let heard = supervisor::losses();
        let mut lanes = Vec::with_capacity(devices.start().len());
        for (id, share) in (0..).zip(devices.start()) {
            let lane = devices.open(id, share, router.lane_sink(), heard.0.watch())?;
            router.lane_up(lane.clone(), 1).await;
            lanes.push(lane);
        }
        let source = match &config.repository.path {
            Some(path) => Source::Folder(Repository::open(path)?),
            None => Source::Embedded,
        };
        let environment = Environment {
            router,
            lanes: lanes.clone(),
            live,
            waking: config
                .partition
                .idle
                .filter(|_| live)
                .map(|_| Waking { wanted: Arc::default(), patience: config.partition.prepare_timeout.0 }),
            verify: live || config.devices.isolation == Isolation::Process,
            warm_pool: config.partition.warm_pool,
            engine: config.repository.engine.parse()?,
            settings: config.models.clone(),
            queue_limit: u32::try_from(limits.queue.get()).unwrap_or(u32::MAX),
            triton_names: config.metrics.triton_names,
        };
        let catalog = Arc::new(Catalog::new(source, environment));
        let stop_control = CancellationToken::new();
        let (watch, supervised) = (heard.0.clone(), Arc::clone(&catalog));
        let setup = SupervisorSetup { catalog: supervised, devices: Arc::clone(&devices), live };
        let supervisor = Supervisor::start(setup, heard, stop_control.clone())?;
        Ok(Self {
            catalog,
            supervisor,
            losses: watch,
            load_mode: config.repository.load,
            started: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            violations: Mutex::default(),
            lane_metrics: (0..lanes_max).map(LaneMetrics::new).collect(),
            lanes,
            devices,
            partition: config.partition.clone(),
            control: OnceLock::new(),
            stop_control,
        })
    }

    /// Loads what is to be loaded at start, as many models at a time as there are lanes. A model that fails is
    /// logged and keeps the server from being ready until it is mended or unloaded; the others serve.
    pub async fn load_at_start(&self) {
        if self.load_mode == LoadMode::All {
            let turns = Arc::new(Semaphore::new(self.lanes.len().max(1)));
            let mut loads = JoinSet::new();
            for name in self.catalog.names_at_start() {
                let (catalog, turns) = (Arc::clone(&self.catalog), Arc::clone(&turns));
                loads.spawn(async move {
                    let _turn = turns.acquire().await;
                    // A failure is in the log and in the index.
                    let _ = catalog.load(&name, Haste::BeforeServing).await;
                });
            }
            while loads.join_next().await.is_some() {}
        }
        self.started.store(true, Ordering::SeqCst);
    }

    /// From now on gpulets follow the load, if that is configured.
    ///
    /// # Errors
    /// What is wrong with what `[partition]` names.
    pub fn start_control(&self) -> anyhow::Result<()> {
        if !self.partition.live {
            return Ok(());
        }
        let setup = ControlSetup {
            options: self.partition.clone(),
            catalog: Arc::clone(&self.catalog),
            devices: Arc::clone(&self.devices),
            losses: self.losses.clone(),
            lanes: self.lanes.clone(),
        };
        let control = Control::start(setup, self.stop_control.clone())?;
        // There is no second start.
        let _ = self.control.set(control);
        Ok(())
    }

    /// What starts lost lanes again.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// The lanes that it started with.
    pub fn lanes(&self) -> &[LaneHandle] {
        &self.lanes
    }

    /// What models run on.
    pub fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// The models.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// What moves gpulets.
    ///
    /// # Errors
    /// When it is switched off, or the server is starting.
    pub fn control(&self) -> Result<&Control, Refusal> {
        self.control.get().ok_or_else(|| {
            let message = if self.partition.live {
                "gpulets follow the load once the models are loaded: ask again"
            } else {
                "gpulets stay as they are: set `partition.live = true` to let them follow the load"
            };
            Refusal::new(Reason::Unsupported, message)
        })
    }

    /// Refuses what is queued, waits for what runs, and ends the lanes.
    pub async fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.stop_control.cancel();
        self.catalog.router().drain(Instant::now()).await;
        for lane in self.catalog.lanes().iter().chain(&self.lanes) {
            // A lane that is gone has stopped.
            let _ = lane.stop();
        }
    }

    /// True while the process serves (drain included).
    pub fn live(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    /// True when every model that was asked for is ready and the server is not stopping.
    pub fn ready(&self) -> bool {
        self.live() && self.started.load(Ordering::SeqCst) && self.catalog.all_wanted_ready()
    }

    /// Models in the repository and those loaded, sorted by name then version.
    pub fn index(&self, only_ready: bool) -> Vec<IndexRow> {
        self.catalog.index(only_ready)
    }

    /// Loads or reloads a model from the repository; returns when it is ready, the old version serving
    /// until then.
    pub async fn load(&self, name: &str) -> Result<(), Refusal> {
        // Detached, so that a client that leaves does not leave a model half loaded.
        let (catalog, name) = (Arc::clone(&self.catalog), name.to_owned());
        detached(async move { catalog.load(&name, Haste::BesideTraffic).await }).await
    }

    /// Unloads a model: no new requests, queued ones finish, memory is given back.
    pub async fn unload(&self, name: &str) -> Result<(), Refusal> {
        let (catalog, name) = (Arc::clone(&self.catalog), name.to_owned());
        detached(async move { catalog.unload(&name).await }).await
    }

    /// GPUs that models run on.
    pub fn gpus(&self) -> Vec<WatchedGpu> {
        self.devices.gpus().to_vec()
    }

    /// Updates the gauges of queues and lanes and the counters of violated invariants, and logs violations.
    pub async fn refresh_gauges(&self) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).update(Instant::now());
        let Some(snapshot) = self.catalog.router().snapshot().await else { return };
        for loaded in self.catalog.serving_names().iter().flat_map(|name| self.catalog.serving(name)) {
            let queued =
                snapshot.models.iter().find(|model| model.model == loaded.id).map_or(0, |model| model.queued);
            loaded.metrics.queue_depth(usize::try_from(queued).unwrap_or(usize::MAX));
        }
        for (id, metrics) in (0..).zip(&self.lane_metrics) {
            let lane = snapshot.lanes.iter().find(|lane| lane.lane.0 == id);
            metrics.busy(lane.is_some_and(|lane| lane.holding > 0));
        }
    }
}

async fn detached(work: impl Future<Output = Result<(), Refusal>> + Send + 'static) -> Result<(), Refusal> {
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|error| {
        Err(Refusal::new(Reason::Internal, format!("model control ended early: {error}")))
    })
}
