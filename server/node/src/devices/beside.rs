//! Emulated devices on which batches slow each other: they take what profiles say, times what a model of interference says.

use std::time::Duration;

use gpulet::{BatchTimes, EmulatedBatch};
use gpulet_core::interference::{Interference, Runner};
use gpulet_core::profile::Profile;
use models::ModelFiles;
use workload::InterferenceSection;

use super::{Profiled, profile_of};

/// Times of batches by profiles, and what they do to each other.
pub struct Beside {
    alone: Profiled,
    interference: Interference,
}

impl Beside {
    /// By these profiles and a section that [`check`] found sound.
    ///
    /// # Errors
    /// What is wrong with the section.
    pub fn new(profiles: Vec<Profile>, section: &InterferenceSection) -> Result<Self, String> {
        let interference = sim::interference("interference", section).map_err(|error| error.to_string())?;
        Ok(Self { alone: Profiled(profiles), interference })
    }

    fn runner<'a>(&'a self, kind: &str, batch: &EmulatedBatch) -> Option<Runner<'a>> {
        let EmulatedBatch { files, rows, units } = batch;
        let profile = profile_of(&self.alone.0, kind, files.name.as_str(), &files.hash.to_string())?;
        Some(Runner { profile, batch: *rows, units: *units })
    }
}

impl BatchTimes for Beside {
    fn time(&self, kind: &str, files: &ModelFiles, rows: u32, units: u32) -> Option<Duration> {
        self.alone.time(kind, files, rows, units)
    }

    fn slowdown(&self, kind: &str, own: &EmulatedBatch, beside: &[EmulatedBatch]) -> f64 {
        let Some(own) = self.runner(kind, own) else { return 1.0 };
        let others = beside.iter().filter_map(|other| self.runner(kind, other));
        lane_plan::slowdown(&self.interference, &own, others)
    }
}

/// Checks what the configuration says of a kind of device; `field` is the path of the section.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn check(
    field: &str,
    section: &InterferenceSection,
    kind: &str,
    profiles: &[Profile],
) -> anyhow::Result<()> {
    let found = sim::interference(field, section)
        .map_err(|fault| anyhow::anyhow!("{}: {}", fault.field, fault.problem))?;
    for profile in profiles.iter().filter(|profile| profile.device() == kind) {
        if let Some(lacking) = found.lacks(profile) {
            anyhow::bail!("{field}: model `{}` needs {lacking} of `{}`", found.name(), profile.model());
        }
    }
    Ok(())
}
