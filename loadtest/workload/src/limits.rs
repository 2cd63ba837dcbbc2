//! Upper bounds of workloads.

use crate::spans::SECOND;

/// Upper bound on the requests of a workload.
pub const REQUESTS_MAX: u64 = 10_000_000_000;

/// Longest duration of a workload, in nanoseconds: 400 days.
pub const DURATION_MAX: u64 = 400 * 86_400 * SECOND;

/// Upper bound on the models of a workload, including copies.
pub const MODELS_MAX: usize = 10_000;

/// Upper bound on the lanes of a workload.
pub const LANES_MAX: u32 = 65_536;
