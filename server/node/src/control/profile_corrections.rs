//! Tells operators which profiles no longer hold.

use std::collections::BTreeSet;

use gpulet_core::control::ProfileCorrection;

use crate::metrics::ProfileFactors;

/// Logs each corrected profile once, until its times return.
#[derive(Default)]
pub struct ToldCorrections {
    told: BTreeSet<(String, String)>,
    factors: ProfileFactors,
}

impl ToldCorrections {
    /// Reports the corrections in force.
    pub fn tell(&mut self, corrections: &[ProfileCorrection]) {
        self.factors.show(corrections);
        let mut now = BTreeSet::new();
        for ProfileCorrection { model, device_type, factor, .. } in corrections {
            // Predicted cells that were replaced are no fault of the profile.
            if *factor == 1.0 {
                continue;
            }
            let key = (model.clone(), device_type.clone());
            if !self.told.contains(&key) {
                let factor = format!("{factor:.2}");
                tracing::warn!(
                    %model, %device_type, %factor,
                    "batches take this factor of the time in the profile: plans use it; measure the model again with `tessera profile --fresh --model {model}`"
                );
            }
            now.insert(key);
        }
        for (model, device_type) in self.told.difference(&now) {
            tracing::info!(%model, %device_type, "batches take the time in the profile again");
        }
        self.told = now;
    }
}
