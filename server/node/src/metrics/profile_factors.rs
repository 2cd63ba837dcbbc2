//! Factors by which plans correct profiles.

use std::collections::BTreeMap;

use gpulet_core::control::ProfileCorrection;
use metrics::Gauge;

use super::names;

/// One gauge per corrected model and device type, created with the first correction.
#[derive(Default)]
pub struct ProfileFactors {
    gauges: BTreeMap<(String, String), Gauge>,
}

impl ProfileFactors {
    /// Sets the gauges of these profiles, and all others to 1.
    pub fn show(&mut self, corrections: &[ProfileCorrection]) {
        self.gauges.values().for_each(|gauge| gauge.set(1.0));
        for ProfileCorrection { model, device_type, factor, .. } in corrections {
            let gauge = self.gauges.entry((model.clone(), device_type.clone())).or_insert_with(|| {
                let labels = [(names::MODEL, model.clone()), (names::DEVICE_TYPE, device_type.clone())];
                metrics::gauge!(names::PROFILE_FACTOR.name, &labels)
            });
            gauge.set(*factor);
        }
    }
}
