//! One loaded version.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpulet::LaneHandle;
use models::{ContentHash, EffectiveConfig, Signature};
use router_core::ModelId;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::shapes::Shapes;
use super::statistics::Statistics;
use crate::metrics::ModelMetrics;

/// A version that serves, or did until a moment ago.
pub struct Loaded {
    /// Its number in the router and on the lanes.
    pub id: ModelId,
    /// Model name.
    pub name: String,
    /// Version number.
    pub version: u64,
    /// Inputs, outputs, largest batch.
    pub signature: Arc<Signature>,
    /// How it is served.
    pub config: EffectiveConfig,
    /// Hash of its files.
    pub hash: ContentHash,
    /// Engine that runs it.
    pub engine: &'static str,
    /// Class labels by output.
    pub labels: Arc<BTreeMap<String, Vec<String>>>,
    /// Lanes that hold a session of it.
    pub lanes: Vec<LaneHandle>,
    /// Which requests may share a batch.
    pub shapes: Shapes,
    /// Counts for the statistics extension.
    pub statistics: Statistics,
    /// Metrics handles.
    pub metrics: ModelMetrics,
    /// Requests that use it.
    pub users: TaskTracker,
}

impl Loaded {
    /// Holds the version in the router while a request uses it; `None` once it is being retired.
    pub fn hold(&self) -> Option<TaskTrackerToken> {
        // The order matters: a retirement that begins in between sees the token and waits for it.
        let token = self.users.token();
        (!self.users.is_closed()).then_some(token)
    }
}
