//! Readings of GPUs from NVIDIA's management library (NVML). Nothing is ever set.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The library is missing or does not initialise.
    #[error("no NVIDIA management library (libnvidia-ml.so.1): {0}")]
    Library(NvmlError),
    /// The library does not list the GPUs.
    #[error("the NVIDIA management library does not list its GPUs: {0}")]
    List(NvmlError),
}

/// A MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// The value for `CUDA_VISIBLE_DEVICES`.
    pub uuid: String,
    /// The name of its device type in profiles.
    pub name: String,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
}

/// Readings of one GPU at one moment. None where the GPU does not report a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readings {
    /// As `nvidia-smi -L` writes it; equal to [`Found::uuid`](crate::Found::uuid) unless that is a MIG instance.
    pub uuid: Option<String>,
    /// The name of its device type in profiles.
    pub name: Option<String>,
    /// Time in which some kernel ran, in percent, on any number of SMs.
    pub busy_percent: Option<u32>,
    /// Time in which memory was read or written, in percent.
    pub memory_busy_percent: Option<u32>,
    /// Memory in use by all processes, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Memory, in bytes.
    pub memory_total_bytes: Option<u64>,
    /// Clock of the SMs.
    pub clock_sm_mhz: Option<u32>,
    /// Clock of the memory.
    pub clock_memory_mhz: Option<u32>,
    /// Why clocks are lower than possible, by NVIDIA's names. An idle GPU has a reason too.
    pub throttle_reasons: Option<Vec<&'static str>>,
    /// Power draw.
    pub power_milliwatts: Option<u32>,
    /// Temperature of the chip.
    pub temperature_celsius: Option<u32>,
    /// Whether MIG is on.
    pub mig: bool,
    /// The MIG instances.
    pub instances: Vec<Instance>,
}

/// Reads GPUs.
pub struct Monitor {
    library: Nvml,
}

impl Monitor {
    /// Loads the management library.
    ///
    /// # Errors
    /// The library is missing or does not initialise.
    pub fn open() -> Result<Self, MonitorError> {
        Ok(Self { library: Nvml::init().map_err(MonitorError::Library)? })
    }

    pub(crate) fn library(&self) -> &Nvml {
        &self.library
    }

    /// Reads every GPU, in the library's order, which `CUDA_VISIBLE_DEVICES` does not change. A GPU that does not answer
    /// is left out.
    ///
    /// # Errors
    /// The GPUs cannot be listed.
    pub fn read(&self) -> Result<Vec<Readings>, MonitorError> {
        let count = self.library.device_count().map_err(MonitorError::List)?;
        Ok((0..count)
            .filter_map(|index| self.library.device_by_index(index).ok())
            .map(|gpu| read(&gpu))
            .collect())
    }
}

fn read(gpu: &Device<'_>) -> Readings {
    let utilisation = gpu.utilization_rates().ok();
    let memory = gpu.memory_info().ok();
    let mig = gpu.mig_mode().is_ok_and(|mode| mode.current == MIG_ENABLED);
    Readings {
        uuid: gpu.uuid().ok(),
        name: gpu.name().ok(),
        busy_percent: utilisation.as_ref().map(|rates| rates.gpu),
        memory_busy_percent: utilisation.as_ref().map(|rates| rates.memory),
        memory_used_bytes: memory.as_ref().map(|memory| memory.used),
        memory_total_bytes: memory.as_ref().map(|memory| memory.total),
        clock_sm_mhz: gpu.clock_info(Clock::SM).ok(),
        clock_memory_mhz: gpu.clock_info(Clock::Memory).ok(),
        throttle_reasons: gpu.current_throttle_reasons().ok().map(names),
        power_milliwatts: gpu.power_usage().ok(),
        temperature_celsius: gpu.temperature(TemperatureSensor::Gpu).ok(),
        mig,
        instances: if mig { instances(gpu) } else { Vec::new() },
    }
}

/// `NVML_DEVICE_MIG_ENABLE`.
const MIG_ENABLED: u32 = 1;

fn names(reasons: ThrottleReasons) -> Vec<&'static str> {
    reasons.iter_names().map(|(name, _)| name).collect()
}

/// The existing instances; not every index has one.
fn instances(gpu: &Device<'_>) -> Vec<Instance> {
    let places = 0..gpu.mig_device_count().unwrap_or(0);
    let found = places.filter_map(|index| gpu.mig_device_by_index(index).ok());
    let described = found.filter_map(|instance| {
        Some(Instance {
            uuid: instance.uuid().ok()?,
            name: instance.name().ok()?,
            memory_bytes: instance.memory_info().ok().map(|memory| memory.total),
        })
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_reasons_have_names() {
        let reasons = ThrottleReasons::SW_POWER_CAP | ThrottleReasons::GPU_IDLE;
        let mut names = names(reasons);
        names.sort_unstable();
        assert_eq!(names, ["GPU_IDLE", "SW_POWER_CAP"]);
    }
}
