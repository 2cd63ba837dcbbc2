//! What was counted of the models, for the control loop.

use gpulet_core::control::{Counts, Seen};
use router_core::{ModelId, Snapshot};

use crate::catalog::Loaded;

/// A version by now.
pub fn seen(loaded: &Loaded, snapshot: &Snapshot) -> Seen {
    let crate::catalog::Counts { rows, answered, late, failed } = loaded.statistics.counts();
    let (queued, in_flight) = waiting(snapshot, loaded.id);
    Seen {
        number: loaded.id.0,
        counts: Counts { rows, answered, late, failed },
        queued,
        in_flight,
        waiting: u64::from(loaded.place.waiting()),
    }
}

fn waiting(snapshot: &Snapshot, id: ModelId) -> (u64, u64) {
    let found = snapshot.models.iter().find(|model| model.model == id);
    found.map_or((0, 0), |model| (model.queued, u64::from(model.in_flight)))
}
