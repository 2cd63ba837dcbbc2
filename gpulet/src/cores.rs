//! The cores that this process may use, and the device that they are.

use std::sync::Arc;

use models::engine::Session;
use models::engine::ort::PreparedModel;
use models::{LoadOptions, Loader, ModelFiles};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::device::{
    Capacity, Compute, CoreSet, Device, DeviceError, DeviceInfo, FaultDomain, Guarantees, Partition,
    PartitionSpec, PartitionWatch, Resize, Sharing, TimeSharing,
};

/// The kernel rejected an affinity call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreError {
    /// The affinity mask could not be read.
    #[error("cannot read the cores this process may use: {0}")]
    Read(std::io::ErrorKind),
    /// A thread could not be pinned.
    #[error("cannot pin a thread to cores {cores:?}: {kind}")]
    Pin {
        /// The requested cores.
        cores: Vec<usize>,
        /// Error of the kernel.
        kind: std::io::ErrorKind,
    },
}

/// Numbers of the cores in this process's affinity mask, ascending.
pub fn allowed_cores() -> Result<Vec<usize>, CoreError> {
    let mask = sched_getaffinity(None).map_err(|errno| CoreError::Read(errno.kind()))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| mask.is_set(core)).collect())
}

/// Pins the calling thread to these cores.
pub fn pin_this_thread(cores: &[usize]) -> Result<(), CoreError> {
    let mut mask = CpuSet::new();
    let refused = |kind| CoreError::Pin { cores: cores.to_vec(), kind };
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(refused(std::io::ErrorKind::InvalidInput));
        }
        mask.set(core);
    }
    sched_setaffinity(None, &mask).map_err(|errno| refused(errno.kind()))
}

/// Cores of this machine. A gpulet is a set of cores with a thread that is pinned to them.
pub struct CoresDevice {
    info: DeviceInfo,
    cores: Vec<usize>,
    loader: Arc<Loader>,
}

impl CoresDevice {
    /// Name of the backend.
    pub const BACKEND: &str = "cpu-cores";
    /// Device type in profiles.
    pub const DEVICE_TYPE: &str = "cpu";

    /// Creates a device whose units are these cores, in this order.
    pub fn new(name: &str, cores: Vec<usize>, memory_bytes: u64, loader: Arc<Loader>) -> Self {
        let units = u32::try_from(cores.len()).unwrap_or(u32::MAX);
        let info = DeviceInfo {
            name: name.to_owned(),
            backend: Self::BACKEND,
            device_type: Self::DEVICE_TYPE.to_owned(),
            units,
            sizes: (1..=units).collect(),
            memory_bytes,
            base_bytes: 0,
            gpulet_bytes: 0,
            fault_domain: name.to_owned(),
            guarantees: Guarantees {
                compute: Compute::Exclusive,
                memory_bandwidth: Sharing::Shared,
                cache: Sharing::Shared,
                copy_engines: Sharing::Shared,
                memory_capacity: Capacity::Accounted,
                fault_domain: FaultDomain::Process,
                resize: Resize::Live,
                overlap: true,
                time_sharing: TimeSharing::CertainUnits,
            },
        };
        Self { info, cores, loader }
    }
}

impl Device for CoresDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(
        &self,
        spec: &PartitionSpec,
        _watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        Ok(Arc::new(self.partition(spec, false)?))
    }

    fn open_at_idle_priority(
        &self,
        spec: &PartitionSpec,
        _watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        Ok(Arc::new(self.partition(spec, true)?))
    }
}

impl CoresDevice {
    fn partition(&self, spec: &PartitionSpec, idle_priority: bool) -> Result<CorePartition, DeviceError> {
        let first = usize::try_from(spec.first_unit).unwrap_or(usize::MAX);
        let end = first.saturating_add(usize::try_from(spec.units).unwrap_or(usize::MAX));
        let cores = self.cores.get(first..end).filter(|cores| !cores.is_empty()).ok_or_else(|| {
            let (name, units) = (&self.info.name, self.info.units);
            DeviceError(format!("device `{name}` has units 0 to {units}: no gpulet of {first} to {end}"))
        })?;
        let (device, loader) = (self.info.name.clone(), Arc::clone(&self.loader));
        Ok(CorePartition { device, cores: cores.to_vec(), idle_priority, loader })
    }
}

struct CorePartition {
    device: String,
    cores: Vec<usize>,
    idle_priority: bool,
    loader: Arc<Loader>,
}

impl Partition for CorePartition {
    fn cores(&self) -> &[usize] {
        &self.cores
    }

    fn idle_priority(&self) -> bool {
        self.idle_priority
    }

    fn core_set(&self) -> Option<CoreSet> {
        // A session for one core runs on the lane's own thread, wherever that is.
        let cores = if self.cores.len() > 1 { self.cores.clone() } else { Vec::new() };
        Some(CoreSet { device: self.device.clone(), cores })
    }

    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        self.loader.load(files, options).map_err(|error| DeviceError(error.to_string()))
    }

    fn load_prepared(
        &self,
        model: &PreparedModel,
        options: &LoadOptions,
    ) -> Option<Result<Box<dyn Session>, DeviceError>> {
        let session = self.loader.load_prepared(model, options);
        Some(session.map_err(|error| DeviceError(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        let last = *allowed_cores().unwrap().last().unwrap();
        let seen = std::thread::spawn(move || {
            pin_this_thread(&[last]).unwrap();
            allowed_cores().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
    }

    #[test]
    fn cores_that_are_not_there_are_refused() {
        let refused = std::thread::spawn(|| pin_this_thread(&[CpuSet::MAX_CPU + 1])).join().unwrap();
        assert!(refused.unwrap_err().to_string().starts_with("cannot pin a thread"));
    }
}
