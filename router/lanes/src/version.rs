//! A model version, as the router and the planner know it.

use gpulet_core::control::Model;
use router_core::ModelId;

/// A model version that takes requests.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// Its id in the router.
    pub id: ModelId,
    /// What plans know of it. Every version of a workload gets the time slices of that workload.
    pub model: &'a Model,
    /// Payload bytes of a row. `None` if rows differ in size: batch times of one size say nothing about others, so
    /// the router is told no times and measures them.
    pub row_bytes: Option<u64>,
}
