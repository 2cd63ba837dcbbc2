//! Counters of models, as input of the control loop.

use std::collections::BTreeMap;

use gpulet_core::control::{BatchTotals, ModelCounts};
use gpulet_core::rollout::GpuletId;
use router_core::Snapshot;

use crate::catalog::Loaded;

/// Current counters of a version.
pub fn seen(loaded: &Loaded, snapshot: &Snapshot) -> ModelCounts {
    lane_plan::load_of(
        snapshot,
        loaded.id,
        loaded.statistics.counts(),
        u64::from(loaded.activation.waiting()),
    )
}

/// Batches of a version on lanes that belong to gpulets.
pub fn ran(loaded: &Loaded, gpulets: &BTreeMap<u32, GpuletId>) -> Vec<BatchTotals> {
    let ran = loaded.statistics.lane_batches().into_iter().filter_map(|batches| {
        Some(BatchTotals {
            gpulet: *gpulets.get(&batches.lane)?,
            number: gpulet_core::id::ModelId(loaded.id.0),
            rows: batches.rows,
            batches: batches.count,
            time_us: batches.compute.into(),
        })
    });
    ran.collect()
}
