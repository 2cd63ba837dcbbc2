//! Plans of gpulets as lanes of the router.
//!
//! `gpulet-core` decides which gpulets exist and `router-core` decides which batch runs on which lane; neither knows the
//! other. This crate translates between them, without I/O and without a clock. The server and the simulator both use it,
//! so a simulated plan serves exactly as the same plan does on real lanes.

#![forbid(unsafe_code)]

mod classes;
mod numbers;
mod quota;
mod switch;
#[cfg(test)]
mod tests;
mod times;
mod version;

use gpulet_core::control::{Counts, ModelCounts};
use router_core::{ModelId, Snapshot};

pub use classes::LaneClasses;
pub use numbers::{LANES_MAX, LANES_PER_UNIT, LanesInUse, free_lane, lanes_max};
pub use quota::QuotaError;
pub use switch::{Untranslatable, lanes_of};
pub use times::{batch_time, slowdown};
pub use version::Version;

/// The load of one model version: what the caller counted, and what waits and runs in the router.
///
/// `waiting` counts requests that the router has not seen because the model has no gpulet.
pub fn load_of(snapshot: &Snapshot, model: ModelId, counts: Counts, waiting: u64) -> ModelCounts {
    // A version that the router does not know yet has no requests there.
    let known = snapshot.models.iter().find(|known| known.model == model);
    let (queued, in_flight) = known.map_or((0, 0), |known| (known.queued, u64::from(known.in_flight)));
    ModelCounts { number: gpulet_core::id::ModelId(model.0), counts, queued, in_flight, waiting }
}
