//! What the simulator says of workloads whose outcome is known, and of random ones.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

mod best_effort;
mod drops;
mod families;
mod family_devices;
mod fleets;
mod interference;
mod invariants;
mod limits;
mod model_lanes;
mod outcomes;
mod partition;
mod pipeline_devices;
mod pipelines;
mod ramps;
mod report;
mod rollouts;
mod search;
mod support;
mod tenant_quotas;
mod time_quotas;
