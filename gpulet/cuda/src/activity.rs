//! Activity of the parts of a GPU between two moments: NVIDIA's GPU performance monitoring (GPM), on Hopper and later.
//!
//! The utilisation that every GPU reports is the time in which *some* kernel ran, on any number of SMs. These readings
//! say how many SMs were active, how full they were, and how much of the memory bandwidth was used. They cover the whole
//! GPU and do not distinguish gpulets.
//!
//! **\[open\]**, to be checked on a GPU: whether the driver lets an unprivileged process sample.

use std::collections::BTreeMap;

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample, Nvml};
use serde::Serialize;

use crate::readings::Monitor;

/// In the order of the fields of [`Activity`].
const METRICS: [GpmMetricId; 3] = [GpmMetricId::SmUtil, GpmMetricId::SmOccupancy, GpmMetricId::DramBwUtil];

/// Activity of a GPU between two readings. Shares are from 0 to 1; none if the GPU does not report the value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// Share of the SMs that were active, averaged over time.
    pub sm_active: Option<f64>,
    /// Resident warps divided by the most that fit on all SMs.
    pub sm_occupancy: Option<f64>,
    /// Share of the memory bandwidth that was used.
    pub memory_bandwidth: Option<f64>,
}

/// Why a GPU's activity is unknown.
#[derive(Debug, thiserror::Error)]
pub enum NoActivity {
    /// The GPU has no GPM.
    #[error("no GPU performance monitoring (GPM): expected a GPU of Hopper (9.0) or later without MIG")]
    Unsupported,
    /// The library failed.
    #[error("no GPU performance monitoring (GPM): {0}")]
    Library(NvmlError),
    /// The library does not list the GPU.
    #[error("no GPU performance monitoring (GPM): the management library lists no GPU `{0}`")]
    Unknown(String),
}

impl Monitor {
    /// Starts to watch the activity of GPUs.
    pub fn activity(&self) -> ActivityWatch<'_> {
        ActivityWatch { library: self.library(), last: BTreeMap::new() }
    }
}

/// Samples of GPUs, each compared with the previous one.
pub struct ActivityWatch<'a> {
    library: &'a Nvml,
    /// The last sample, by UUID.
    last: BTreeMap<String, GpmSample<'a>>,
}

impl ActivityWatch<'_> {
    /// Activity of the GPU with this UUID (`GPU-...`) since the last call for it; none the first time.
    ///
    /// # Errors
    /// Why it is unknown. The call may be repeated.
    pub fn since_last(&mut self, uuid: &str) -> Result<Option<Activity>, NoActivity> {
        let sample = sample(&self.gpu(uuid)?)?;
        let Some(before) = self.last.insert(uuid.to_owned(), sample) else { return Ok(None) };
        let Some(now) = self.last.get(uuid) else { return Ok(None) };
        let results = gpm_metrics_get(self.library, &before, now, &METRICS).map_err(NoActivity::Library)?;
        let mut shares = results.into_iter().map(|result| Some(result.ok()?.value / 100.0));
        let mut next = || shares.next().flatten().filter(|share| share.is_finite());
        Ok(Some(Activity { sm_active: next(), sm_occupancy: next(), memory_bandwidth: next() }))
    }
}

impl<'a> ActivityWatch<'a> {
    fn gpu(&self, uuid: &str) -> Result<Device<'a>, NoActivity> {
        let library: &'a Nvml = self.library;
        let count = library.device_count().map_err(NoActivity::Library)?;
        let mut all = (0..count).filter_map(|index| library.device_by_index(index).ok());
        let found = all.find(|gpu| gpu.uuid().is_ok_and(|known| known == uuid));
        found.ok_or_else(|| NoActivity::Unknown(uuid.to_owned()))
    }
}

fn sample<'a>(gpu: &Device<'a>) -> Result<GpmSample<'a>, NoActivity> {
    match gpu.gpm_support() {
        Ok(true) => gpu.gpm_sample().map_err(NoActivity::Library),
        Ok(false) | Err(NvmlError::NotSupported) => Err(NoActivity::Unsupported),
        Err(error) => Err(NoActivity::Library(error)),
    }
}
