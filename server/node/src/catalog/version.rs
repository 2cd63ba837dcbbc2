//! One loaded version.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use gpulet::LaneHandle;
use models::engine::ort::PreparedModel;
use models::{ContentHash, EffectiveConfig, Padding, Reference, Signature};
use router_core::ModelId;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::activation::Activation;
use super::memory::MemoryLease;
use super::refusal_report::RefusalReport;
use super::served_ensemble::ServedEnsemble;
use super::shapes::Shapes;
use super::statistics::Statistics;
use crate::metrics::ModelMetrics;
use crate::reason::Reason;

/// A version that serves, or served until it was replaced.
pub struct Loaded {
    /// Its number in the router and on the lanes.
    pub id: ModelId,
    /// Which load of this process made it; never used again.
    pub load: u64,
    /// Whether its answers are cached.
    pub caches: bool,
    /// Model name.
    pub name: String,
    /// Version number.
    pub version: u64,
    /// Inputs, outputs, largest batch.
    pub signature: Arc<Signature>,
    /// The same without the tensors that the server keeps for sequences: what clients send and get.
    pub client: Arc<Signature>,
    /// How it is served, and class labels by output. Settings that need no new sessions change while it serves.
    pub(super) settings: ArcSwap<Settings>,
    /// Hash of its files.
    pub hash: ContentHash,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Engine that runs it.
    pub engine: &'static str,
    /// Whether its sessions take the requests of a batch one by one, with their details.
    pub takes_requests: bool,
    /// Whether a request may get any number of responses.
    pub decoupled: bool,
    /// The models that it runs instead of sessions, if it is an ensemble.
    pub ensemble: Option<Box<ServedEnsemble>>,
    /// Lanes that hold a session of it.
    pub(super) lanes: Mutex<Vec<Placed>>,
    /// Reference answer for further sessions. None if no synthetic input runs.
    pub(super) reference: Option<Reference>,
    /// What further sessions are made from. None if they need the files.
    pub(super) prepared: Option<PreparedModel>,
    /// How its requests are padded; `None`: they are not.
    pub padding: Option<Padding>,
    /// Shortest times of batches when it was loaded, by rows, on as many cores as its first lane has.
    pub measured: Vec<(u32, Duration)>,
    /// Shape of a row by input at which they were measured; empty if the shapes are fixed.
    pub measured_shapes: BTreeMap<String, Vec<u64>>,
    /// Cores of that lane.
    pub measured_cores: u32,
    /// Whether it has a lane.
    pub activation: Activation,
    /// Which requests may share a batch.
    pub shapes: Shapes,
    /// Counts for the statistics extension.
    pub statistics: Statistics,
    /// Requests that were not answered, for the log.
    pub refusals: RefusalReport,
    /// Metrics handles.
    pub metrics: ModelMetrics,
    /// Its memory in the ledger, until it is unloaded.
    pub(super) memory: Mutex<Option<MemoryLease>>,
    /// Time to read, load and measure it.
    pub load_time: Duration,
    /// Requests that use it.
    pub users: TaskTracker,
}

/// What can change while a version serves.
pub(super) struct Settings {
    pub config: Arc<EffectiveConfig>,
    pub labels: Arc<BTreeMap<String, Vec<String>>>,
}

/// A lane that holds a session of a version.
pub(super) struct Placed {
    pub lane: LaneHandle,
    /// Rows of the largest batch that the session was prepared for.
    pub rows: u32,
    /// Whether its answer matched the reference.
    pub verified: bool,
}

impl Loaded {
    /// How it is served.
    pub fn config(&self) -> Arc<EffectiveConfig> {
        Arc::clone(&self.settings.load().config)
    }

    /// Lets other models take its memory. Its sessions must have been dropped.
    pub(super) fn release_memory(&self) {
        drop(self.memory.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Class labels by output.
    pub fn labels(&self) -> Arc<BTreeMap<String, Vec<String>>> {
        Arc::clone(&self.settings.load().labels)
    }

    /// Counts a request that was not answered.
    pub fn refused(&self, reason: Reason) {
        self.metrics.record_refusal(reason);
        self.refusals.count(reason);
    }

    /// Logs why requests were not answered, if a line is due.
    pub fn report_refusals(&self, now: Instant) {
        let answered = self.statistics.answers();
        if let Some(line) = self.refusals.line(now, answered, self.config().slo) {
            tracing::warn!(model = self.name, version = self.version, "{line}");
        }
    }

    /// Holds the version in the router while a request uses it; `None` once it is being retired.
    pub fn hold(&self) -> Option<TaskTrackerToken> {
        // The order matters: a retirement that begins in between sees the token and waits for it.
        let token = self.users.token();
        (!self.users.is_closed()).then_some(token)
    }

    /// Lanes that hold a session of it.
    pub fn lanes(&self) -> Vec<LaneHandle> {
        let placed = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        placed.iter().map(|placed| placed.lane.clone()).collect()
    }

    /// Whether any lane holds a session of it.
    pub fn has_lane(&self) -> bool {
        !self.lanes.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Counts its session on a lane as one for batches of at least `rows` rows. False if it has none there.
    pub fn widen(&self, lane: u32, rows: u32) -> bool {
        self.change_lanes(|lanes| {
            let own = lanes.iter_mut().find(|placed| placed.lane.id() == lane);
            own.map(|placed| placed.rows = placed.rows.max(rows)).is_some()
        })
    }

    pub(super) fn change_lanes<T>(&self, change: impl FnOnce(&mut Vec<Placed>) -> T) -> T {
        change(&mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
