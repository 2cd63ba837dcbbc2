//! A GPU as a device.

use std::sync::Arc;

use gpulet::{Device, DeviceError, DeviceInfo, Partition, PartitionSpec, PartitionWatch};

use crate::backend::Backend;
use crate::ledger::MemoryState;
use crate::maker::SessionMaker;
use crate::partition::OpenGpulet;
use crate::probe::Found;
use crate::state::{CudaOptions, State};
use crate::units::{Grid, UnitRange};

/// A GPU, or a MIG instance, divided into gpulets.
pub struct CudaDevice {
    state: Arc<State>,
}

impl CudaDevice {
    /// Takes a GPU that [`probe`](crate::probe) found: creates its context, splits it, and measures its free memory.
    /// `maker` makes its sessions. A process can take a GPU only once at a time.
    ///
    /// # Errors
    /// Names the device, and what the driver or the backend does not support.
    pub fn take(
        found: &Found,
        backend: Backend,
        maker: Arc<dyn SessionMaker>,
        options: &CudaOptions,
    ) -> Result<Self, DeviceError> {
        Ok(Self { state: State::take(found, backend, maker, options)? })
    }

    /// The units and their SMs.
    pub fn grid(&self) -> &Grid {
        self.state.grid()
    }

    /// The memory ledger.
    pub fn memory(&self) -> MemoryState {
        self.state.memory()
    }

    /// Units of the idle contexts, the one that has been idle longest first.
    pub fn idle_contexts(&self) -> Vec<UnitRange> {
        self.state.idle_contexts()
    }

    /// Why the device failed, if it did.
    pub fn failure(&self) -> Option<String> {
        self.state.failure()
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        self.state.info()
    }

    fn open(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        let gpulet = self.state.open(spec, false, watch)?;
        Ok(Arc::new(OpenGpulet { gpulet, device: Arc::clone(&self.state) }))
    }

    /// The gpulet's stream has the lowest priority. A block that runs is not stopped: others wait for the end of the blocks
    /// that run, and not for those that have not started.
    fn open_at_idle_priority(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        let gpulet = self.state.open(spec, true, watch)?;
        Ok(Arc::new(OpenGpulet { gpulet, device: Arc::clone(&self.state) }))
    }
}
