//! Batch times of emulated devices under contention: the profile's time times the interference model's slowdown.

use std::time::Duration;

use device_sections::InterferenceSection;
use gpulet::{BatchTimes, EmulatedBatch};
use gpulet_core::interference::{Interference, Runner};
use gpulet_core::profile::Profile;
use models::ModelFiles;

use super::{Profiled, profile_of};

/// Batch times by profile, slowed down by co-located batches.
pub struct ContendedTimes {
    solo: Profiled,
    interference: Interference,
}

impl ContendedTimes {
    /// Batch times by these profiles and a section that [`check`] accepted.
    ///
    /// # Errors
    /// Says what is wrong with the section.
    pub fn new(profiles: Vec<Profile>, section: &InterferenceSection) -> Result<Self, String> {
        let interference =
            device_sections::interference("interference", section).map_err(|error| error.to_string())?;
        Ok(Self { solo: Profiled(profiles), interference })
    }

    fn runner<'a>(&'a self, device_type: &str, batch: &EmulatedBatch) -> Option<Runner<'a>> {
        let EmulatedBatch { files, rows, units } = batch;
        let profile = profile_of(&self.solo.0, device_type, files.name.as_str(), &files.hash.to_string())?;
        Some(Runner { profile, batch: *rows, units: *units })
    }
}

impl BatchTimes for ContendedTimes {
    fn time(&self, device_type: &str, files: &ModelFiles, rows: u32, units: u32) -> Option<Duration> {
        self.solo.time(device_type, files, rows, units)
    }

    fn slowdown(&self, device_type: &str, own: &EmulatedBatch, co_located: &[EmulatedBatch]) -> f64 {
        let Some(own) = self.runner(device_type, own) else { return 1.0 };
        let others = co_located.iter().filter_map(|other| self.runner(device_type, other));
        lane_plan::slowdown(&self.interference, &own, others)
    }
}

/// Checks the configuration of a device type; `field` is the path of the section.
///
/// # Errors
/// Says what is wrong, and what would be right.
pub fn check(
    field: &str,
    section: &InterferenceSection,
    device_type: &str,
    profiles: &[Profile],
) -> anyhow::Result<()> {
    device_sections::interference_on(field, section, device_type, profiles)
        .map(drop)
        .map_err(anyhow::Error::from)
}
