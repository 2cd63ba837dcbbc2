//! Tessera's decision core for requests: admission, queues, batching, lane choice, expiry and drain, as one
//! state machine without I/O.
//!
//! [`Router::handle`] takes the time and an event and appends effects. It is the only way to change the state. The
//! server feeds it from sockets and the monotonic clock, the simulator from a seeded workload in virtual time, and tests
//! from literals. It never sees a tensor: payloads stay with the caller, keyed by [`RequestId`].
//!
//! Every limit here has a name in [`RouterConfig`] or [`ModelSpec`].

#![forbid(unsafe_code)]

pub mod batch;
pub mod bound;
mod config;
mod cost;
mod costs;
mod cycle;
mod error;
mod event;
mod family;
mod forecast;
mod gatherings;
mod heap;
mod id;
mod lane;
mod lane_set;
mod lanes;
mod machine;
mod model;
mod models;
mod ordered;
pub mod pipeline;
mod pool;
mod protection;
mod queue;
mod rate;
mod recent_slack;
mod records;
mod request;
mod resources;
mod sequences;
mod switch;
mod tenant_accounts;
mod tenant_quota;
mod tenant_table;
mod tenants;
mod time;
mod time_quota;
mod timers;
mod token_bucket;
pub mod voting;

pub use config::{LaneSpec, ModelLanes, ModelSpec, ProfilePoint, RouterConfig};
pub use cost::CostModel;
pub use cycle::{Cycle, CycleSlot};
pub use error::ConfigError;
pub use event::{Arrival, BatchReport, Effect, Effects, Event, Members, Outcome, Reason, TimeoutAction};
pub use family::{FamilyId, FamilyRequest, FamilySpec, Incoming, Variant, millionths};
pub use forecast::Forecast;
pub use gatherings::{Gather, GatherCounts, Gatherings};
pub use id::{BatchId, Class, LaneClass, LaneId, ModelId, RequestId, ShapeKey, Tenant};
pub use machine::{
    Checker, FamilySnapshot, LaneSnapshot, ModelBacklog, ModelSnapshot, Router, Snapshot, Violation,
};
pub use pipeline::{PipelineId, PipelineSpec, PipelineStage, Position, Split};
pub use protection::Protect;
pub use records::{Decided, Explanation, LaneChoice, Record};
pub use resources::{RateLimit, ResourceId};
pub use sequences::{CorrelationId, SequenceEffect, SequenceLimits, SequenceRequest, Sequences};
pub use switch::{LaneClassTimes, LaneState, LaneUp, ModelMove, Switch, SwitchRefusal};
pub use tenant_accounts::TenantUse;
pub use tenant_quota::TenantQuota;
pub use tenant_table::TenantTable;
pub use time::Nanos;
pub use time_quota::{QuotaUnits, TimeQuota};
pub use token_bucket::Allowance;
