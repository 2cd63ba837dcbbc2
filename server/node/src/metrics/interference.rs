//! How far predictions of batch times beside neighbours are off.

use std::collections::BTreeMap;

use gpulet_core::control::InterferenceEntry;
use metrics::Gauge;

use super::names;

/// A gauge of each kind of device and belief, made when there is something to say.
#[derive(Default)]
pub struct InterferenceMetrics {
    kinds: BTreeMap<String, (Gauge, Gauge)>,
}

impl InterferenceMetrics {
    /// Sets what is known by now.
    pub fn tell(&mut self, entries: &[InterferenceEntry]) {
        for InterferenceEntry { kind, error, error_of_none, .. } in entries {
            let (Some(learned), Some(none)) = (error, error_of_none) else { continue };
            let gauge = |belief: &'static str| {
                let labels = [(names::KIND, kind.clone()), (names::INTERFERENCE, belief.to_owned())];
                metrics::gauge!(names::INTERFERENCE_ERROR.name, &labels)
            };
            let gauges = self.kinds.entry(kind.clone()).or_insert_with(|| (gauge("learned"), gauge("none")));
            gauges.0.set(learned.mean_pct / 100.0);
            gauges.1.set(none.mean_pct / 100.0);
        }
    }
}
