//! What the parts of a GPU did between two moments: NVIDIA's GPU performance monitoring (GPM), on Hopper and later.
//!
//! Utilisation as every GPU gives it is the time in which *some* kernel ran, on however many SMs. These readings say how
//! many SMs had work, how full those were, and how much of the memory's bandwidth was used. They are of the whole GPU:
//! gpulets are not told apart.
//!
//! **\[open\]**, to be read off a GPU: whether the driver lets a process without privileges sample.

use std::collections::BTreeMap;

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample, Nvml};
use serde::Serialize;

use crate::readings::Monitor;

/// In the order of the fields of [`Activity`].
const METRICS: [GpmMetricId; 3] = [GpmMetricId::SmUtil, GpmMetricId::SmOccupancy, GpmMetricId::DramBwUtil];

/// What a GPU did between two readings; shares are from 0 to 1. `None`: this GPU does not say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// Share of the SMs that had work, in the mean over time.
    pub sm_active: Option<f64>,
    /// Warps at work over the most that fit on all SMs.
    pub sm_occupancy: Option<f64>,
    /// Share of the memory's bandwidth that was used.
    pub memory_bandwidth: Option<f64>,
}

/// Why a GPU does not say what its parts do.
#[derive(Debug, thiserror::Error)]
pub enum NoActivity {
    /// It has no such readings.
    #[error(
        "no GPU performance monitoring (GPM): expected a GPU of Hopper (9.0) or later that MIG did not cut"
    )]
    Unsupported,
    /// The library does not give them.
    #[error("no GPU performance monitoring (GPM): {0}")]
    Library(NvmlError),
    /// The library does not know the GPU.
    #[error("no GPU performance monitoring (GPM): the management library lists no GPU `{0}`")]
    Unknown(String),
}

impl Monitor {
    /// Starts to watch what the parts of GPUs do.
    pub fn activity(&self) -> ActivityWatch<'_> {
        ActivityWatch { library: self.library(), last: BTreeMap::new() }
    }
}

/// Samples of GPUs, each compared with the one before it.
pub struct ActivityWatch<'a> {
    library: &'a Nvml,
    /// By GPU.
    last: BTreeMap<String, GpmSample<'a>>,
}

impl ActivityWatch<'_> {
    /// What the GPU of this name (`GPU-...`) did since it was last asked about; none the first time.
    ///
    /// # Errors
    /// Why that is not known; it may be asked again.
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
