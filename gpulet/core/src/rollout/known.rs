//! Gpulets that exist, or are being opened or closed, and what they hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::proposal::{Footprint, SizedGpulet};
use crate::id::DeviceId;
use crate::time::Micros;

/// A model on a gpulet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Memory that it may take, counted from the request to prepare it.
    pub need: Footprint,
    /// Rows of the largest batch that it was prepared for; 0 while it is not.
    pub prepared: u32,
    /// Rows of the largest batch that it was verified for.
    pub verified: u32,
}

/// The draining of a gpulet that receives no further batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drain {
    pub since_us: Micros,
    /// Deadline of the drain. Passing it is an incident.
    pub until_us: Micros,
    /// Whether it finished its last batch.
    pub drained: bool,
    /// Whether the incident was reported.
    pub reported: bool,
}

/// A gpulet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    /// Where it is, and what it was opened for.
    pub sized: Arc<SizedGpulet>,
    pub sessions: BTreeMap<String, Held>,
    pub opened: bool,
    /// It failed; no plan keeps it.
    pub faulty: bool,
    /// None before its first switch and while it is active.
    pub drain: Option<Drain>,
}

impl Known {
    pub fn new(sized: Arc<SizedGpulet>) -> Self {
        Self { sized, sessions: BTreeMap::new(), opened: false, faulty: false, drain: None }
    }

    pub fn is_ready(&self, wanted: &SizedGpulet) -> bool {
        self.opened
            && wanted
                .sessions
                .iter()
                .all(|(model, need)| self.sessions.get(model).is_some_and(|held| held.verified >= need.batch))
    }

    /// Bytes without weights.
    pub fn own_bytes(&self) -> u64 {
        let arenas = self.sessions.values().map(|held| held.need.arena_bytes);
        arenas.fold(self.sized.own_bytes, u64::saturating_add)
    }

    /// Weights by model.
    pub fn weights(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sessions.iter().map(|(model, held)| (model.as_str(), held.need.weights_bytes))
    }

    pub fn device(&self) -> &DeviceId {
        &self.sized.gpulet.device
    }

    /// Its device and units, for messages.
    pub fn place(&self) -> String {
        let gpulet = &self.sized.gpulet;
        let last = gpulet.first_unit.saturating_add(gpulet.units.saturating_sub(1));
        format!("{}, units {}-{}", gpulet.device, gpulet.first_unit, last)
    }
}
