//! The state as people and dashboards see it.

use serde::Serialize;

use crate::{LaneId, ModelId, Nanos};

/// Everything at one moment; read only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// When.
    pub now: Nanos,
    /// Whether new requests are refused.
    pub draining: bool,
    /// Unfinished requests.
    pub unfinished: usize,
    /// Payload bytes queued.
    pub queued_bytes: u64,
    /// By model id.
    pub models: Vec<ModelSnapshot>,
    /// By lane id.
    pub lanes: Vec<LaneSnapshot>,
}

/// One model version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelSnapshot {
    /// Which.
    pub model: ModelId,
    /// Batching policy.
    pub policy: &'static str,
    /// Requests waiting.
    pub queued: u64,
    /// Requests in batches.
    pub in_flight: u32,
    /// Lanes that run it.
    pub lanes: u32,
    /// Whether it takes no new requests.
    pub retiring: bool,
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneSnapshot {
    /// Which.
    pub lane: LaneId,
    /// Batches it holds.
    pub holding: usize,
    /// Batches it may hold.
    pub depth: u32,
}
