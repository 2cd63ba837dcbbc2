//! Error of predicted batch times under contention.

use std::collections::BTreeMap;

use gpulet_core::control::InterferenceEntry;
use metrics::Gauge;

use super::names;

/// One pair of gauges per device type, created with the first observation.
#[derive(Default)]
pub struct InterferenceMetrics {
    by_device_type: BTreeMap<String, (Gauge, Gauge)>,
}

impl InterferenceMetrics {
    /// Updates the gauges.
    pub fn tell(&mut self, entries: &[InterferenceEntry]) {
        for InterferenceEntry { device_type, error, error_uncorrected, .. } in entries {
            let (Some(learned), Some(none)) = (error, error_uncorrected) else { continue };
            let gauge = |belief: &'static str| {
                let labels =
                    [(names::DEVICE_TYPE, device_type.clone()), (names::INTERFERENCE, belief.to_owned())];
                metrics::gauge!(names::INTERFERENCE_ERROR.name, &labels)
            };
            let gauges = self
                .by_device_type
                .entry(device_type.clone())
                .or_insert_with(|| (gauge("learned"), gauge("none")));
            gauges.0.set(learned.mean_pct / 100.0);
            gauges.1.set(none.mean_pct / 100.0);
        }
    }
}
