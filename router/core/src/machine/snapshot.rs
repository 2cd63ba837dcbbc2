//! The state as people and dashboards see it.

use serde::Serialize;

use crate::batch::StartReason;
use crate::protection::Protection;
use crate::{FamilyId, LaneId, LaneState, ModelId, Nanos, Router, TenantUse};

/// Everything at one moment; read only.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Time of the snapshot.
    pub now: Nanos,
    /// Whether new requests are refused.
    pub draining: bool,
    /// Unfinished requests.
    pub unfinished: usize,
    /// Payload bytes queued.
    pub queued_bytes: u64,
    /// Share of the time in which best-effort work starts, 0 to 1. `None`: it is not limited.
    pub best_effort_share: Option<f64>,
    /// By number.
    pub families: Vec<FamilySnapshot>,
    /// By model id.
    pub models: Vec<ModelSnapshot>,
    /// By lane id.
    pub lanes: Vec<LaneSnapshot>,
    /// By tenant number. Empty for a single tenant without a quota.
    pub tenants: Vec<TenantUse>,
}

/// One family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FamilySnapshot {
    /// Its number.
    pub family: FamilyId,
    /// Quality of the best variant that requests get at the moment, in millionths.
    pub quality: u32,
    /// How often that fell.
    pub falls: u64,
    /// How often it rose.
    pub rises: u64,
}

/// One model version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSnapshot {
    /// Model number.
    pub model: ModelId,
    /// Batching policy.
    pub policy: &'static str,
    /// Rows a second that wanted in lately.
    pub rate: f64,
    /// Requests waiting.
    pub queued: u64,
    /// Requests in batches.
    pub in_flight: u32,
    /// Lanes that run it.
    pub lanes: u32,
    /// Share of those that was busy lately, 0 to 1.
    pub load: f64,
    /// Whether it takes no new requests.
    pub retiring: bool,
    /// Batches by the reason for their start. Reasons that did not occur are left out.
    pub starts: Vec<(StartReason, u64)>,
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneSnapshot {
    /// Lane number.
    pub lane: LaneId,
    /// Whether it is given batches.
    pub state: LaneState,
    /// Batches it holds.
    pub holding: usize,
    /// Batches it may hold.
    pub depth: usize,
    /// When it should be able to take another one, if it cannot now.
    pub busy_until: Option<Nanos>,
}

impl Router {
    /// The state for people. Costs time in proportion to models and lanes.
    pub fn snapshot(&self) -> Snapshot {
        let models = self.models.iter().map(|(id, model)| {
            let pool = self.pools.get(model.pool);
            let starts = StartReason::ALL.into_iter().zip(model.starts);
            ModelSnapshot {
                model: id,
                policy: model.policy.name(),
                rate: model.rate.per_second(self.now),
                queued: model.queued.iter().map(|&count| u64::from(count)).sum(),
                in_flight: model.in_flight,
                lanes: pool.map_or(0, |pool| pool.up.len()),
                load: pool.map_or(0.0, |pool| pool.load.now(self.now, pool.busy_share())),
                retiring: model.retiring,
                starts: starts.filter(|(_, count)| *count > 0).collect(),
            }
        });
        let lanes = self.lanes.iter().filter_map(|(id, lane)| {
            Some(LaneSnapshot {
                lane: id,
                state: self.lane_state(id)?,
                holding: lane.holding.len(),
                depth: lane.depth(),
                busy_until: lane.end,
            })
        });
        Snapshot {
            now: self.now,
            draining: self.drain_until.is_some(),
            unfinished: self.requests.len(),
            queued_bytes: self.queues.bytes(),
            best_effort_share: self.protection.as_ref().map(Protection::share),
            families: self.family_snapshots().collect(),
            models: models.collect(),
            lanes: lanes.collect(),
            tenants: self.tenant_uses().collect(),
        }
    }
}
