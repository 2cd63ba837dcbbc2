//! Configuration of the core: its bounds, its models and its lanes.

use crate::batch::Policy;
use crate::protection::Protect;
use crate::{
    Class, ConfigError, Cycle, LaneClass, LaneId, ModelId, Nanos, RateLimit, TenantTable, TimeQuota,
};

/// Bounds of one router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    /// Unfinished requests, queued and in flight; also the bound on request slots.
    pub max_requests: u32,
    /// Loaded model versions; also the bound on [`ModelId`].
    pub max_models: u32,
    /// Lanes; also the bound on [`LaneId`].
    pub max_lanes: u32,
    /// Payload bytes of all queued requests together.
    pub queued_bytes_limit: u64,
    /// Policies aim to finish this long before the deadline, but by no more than an eighth of the time between arrival and
    /// deadline. Covers the way of the answer to the client, and timers that fire late.
    pub margin: Nanos,
    /// A request without a deadline runs when no request with a deadline is ready for the lane. After waiting this long
    /// it goes first.
    pub best_effort_max_wait: Nanos,
    /// A request that has waited this long is treated as one of the most urgent class.
    pub starvation: Nanos,
    /// Weights and quotas of tenants. [`Event::TenantsChanged`](crate::Event::TenantsChanged) changes them.
    pub tenants: TenantTable,
    /// Totals of resources 0, 1, 2 ... of the rate limiter. The total of those beyond is the most that a model needs.
    pub resources: Vec<u32>,
    /// How much longer best-effort work may make other requests. `None`: as long as it does.
    pub protect: Option<Protect>,
    /// Decisions of each kind that are kept for [`Router::records`](crate::Router::records).
    pub records: u32,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            max_requests: 65_536,
            max_models: 4_096,
            max_lanes: 16_384,
            queued_bytes_limit: 1 << 30,
            margin: Nanos::ZERO,
            best_effort_max_wait: Nanos::from_millis(1_000),
            starvation: Nanos::from_millis(10_000),
            tenants: TenantTable::default(),
            resources: Vec::new(),
            protect: None,
            records: 4_096,
        }
    }
}

/// A measured batch time, from warming up or from a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfilePoint {
    /// Rows in the batch.
    pub rows: u32,
    /// Payload bytes a row.
    pub row_bytes: u64,
    /// Time of the whole batch.
    pub time: Nanos,
}

/// A model version that the router may dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Its id, not in use by another model.
    pub model: ModelId,
    /// Largest batch in rows, at least 1. Requests run alone when it is 1.
    pub max_batch: u32,
    /// Most queued requests of one tenant in one class that `class_limits` does not list.
    pub queue_limit: u32,
    /// Most queued requests of one tenant in each of these classes.
    pub class_limits: Vec<(Class, u32)>,
    /// What each of its running batches holds.
    pub rate_limit: RateLimit,
    /// How batches are formed.
    pub policy: Policy,
    /// Lanes that may run it.
    pub lanes: ModelLanes,
    /// Batch times known before the first request; may be empty.
    pub profile: Vec<ProfilePoint>,
    /// Class of the lanes that `profile` was measured on.
    pub measured_on: LaneClass,
    /// Whether its lanes can return a batch that runs. Batches of other models are not preempted.
    pub preemptible: bool,
}

/// Which lanes run a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelLanes {
    /// Every lane, including those added later.
    All,
    /// Only the listed lanes.
    Only(Vec<LaneId>),
}

impl ModelLanes {
    /// Whether `lane` is one of them.
    pub fn contain(&self, lane: LaneId) -> bool {
        match self {
            Self::All => true,
            Self::Only(lanes) => lanes.contains(&lane),
        }
    }

    /// The lane, if there is exactly one.
    pub(crate) fn only(&self) -> Option<LaneId> {
        match self {
            Self::Only(lanes) => lanes.first().copied().filter(|_| lanes.len() == 1),
            Self::All => None,
        }
    }
}

/// A lane that becomes available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    /// Its id, not in use by another lane.
    pub lane: LaneId,
    /// Time slices of its models. Without a cycle the most urgent batch goes first.
    pub cycle: Option<Cycle>,
    /// Its share of the device's time. `None`: it runs whenever it has a batch.
    pub quota: Option<TimeQuota>,
    /// Lanes of one class take equally long for the same batch.
    pub lane_class: LaneClass,
}

impl LaneSpec {
    /// A lane without a cycle and without a quota.
    pub fn new(lane: LaneId, lane_class: LaneClass) -> Self {
        Self { lane, cycle: None, quota: None, lane_class }
    }
}

impl RouterConfig {
    /// Refuses bounds of zero.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (field, value) in [
            ("max_requests", u64::from(self.max_requests)),
            ("max_models", u64::from(self.max_models)),
            ("max_lanes", u64::from(self.max_lanes)),
            ("queued_bytes_limit", self.queued_bytes_limit),
        ] {
            if value == 0 {
                return Err(ConfigError::new(field, "is 0, expected at least 1"));
            }
        }
        Ok(())
    }
}
