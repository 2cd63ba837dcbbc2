//! Devices, and the gpulets that they are partitioned into.

use std::sync::Arc;

use models::engine::Session;
use models::engine::ort::PreparedModel;
use models::{LoadOptions, ModelFiles};
use serde::{Deserialize, Serialize};

/// How a device isolates the units of a gpulet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compute {
    /// Only the gpulet's own work runs on its units.
    Exclusive,
    /// The gpulet never uses more than its number of units; the device chooses which.
    UpperBound,
    /// The gpulet has the whole device to itself during its time slice.
    TimeSlot,
    /// Gpulets compete for all units.
    None,
}

/// Whether gpulets of one device contend for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// They do not contend for it.
    Isolated,
    /// They contend for it.
    Shared,
}

/// Who enforces the memory limit of a gpulet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// The device enforces it.
    Hard,
    /// The planner accounts for it; the device does not stop a gpulet that uses more.
    Accounted,
}

/// What else a fault in one gpulet stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultDomain {
    /// Only the gpulet itself stops.
    Gpulet,
    /// All gpulets of its device stop.
    Device,
    /// The server process stops.
    Process,
}

/// What a change of a gpulet's size takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resize {
    /// The new gpulet is created next to the old one, in the same process.
    Live,
    /// The new gpulet needs a new process.
    NewProcess,
    /// The size cannot change.
    Fixed,
}

/// How gpulets of one plan can share units in time, by quotas that the router keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeSharing {
    /// A gpulet has a number of units, and no certain ones: gpulets run at once while their numbers fit.
    AnyUnits,
    /// A gpulet has certain units: gpulets that share one do not run at once.
    CertainUnits,
    /// A unit belongs to one gpulet of a plan.
    No,
}

/// What a device guarantees. Plans depend on the guarantees and not on the name of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// How units are isolated.
    pub compute: Compute,
    /// Whether gpulets share memory bandwidth.
    pub memory_bandwidth: Sharing,
    /// Whether gpulets share the last-level cache.
    pub cache: Sharing,
    /// Whether gpulets share the engines that copy tensors to and from the device.
    pub copy_engines: Sharing,
    /// Who enforces memory limits.
    pub memory_capacity: Capacity,
    /// What a fault in a gpulet stops.
    pub fault_domain: FaultDomain,
    /// What a change of size takes.
    pub resize: Resize,
    /// Whether gpulets of the old and the new plan may exist on the same units. The router ensures that they do not
    /// run there at the same time.
    pub overlap: bool,
    /// Whether gpulets of one plan may share units in time.
    pub time_sharing: TimeSharing,
}

/// Description of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// Name in plans, for example `cpu0` or `gpu0`.
    pub name: String,
    /// Name of the backend, for example `cpu-cores`, `emulated` or `cuda-green`.
    pub backend: &'static str,
    /// Device type, as named in profiles.
    pub device_type: String,
    /// Number of units.
    pub units: u32,
    /// Numbers of units that a gpulet may have, ascending.
    pub sizes: Vec<u32>,
    /// Memory for models, in bytes.
    pub memory_bytes: u64,
    /// Bytes of it that the device takes once.
    pub base_bytes: u64,
    /// Bytes of it that each gpulet takes in addition to its models.
    pub gpulet_bytes: u64,
    /// Name of the domain in which devices fail together.
    pub fault_domain: String,
    /// What the device guarantees.
    pub guarantees: Guarantees,
}

/// Position of a gpulet on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSpec {
    /// Number of the lane that will run the gpulet.
    pub lane: u32,
    /// First unit of the gpulet.
    pub first_unit: u32,
    /// Number of units.
    pub units: u32,
}

/// Why a gpulet could not be opened, or could not load a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

/// Where a session can run. Sessions can move between gpulets with equal core sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSet {
    /// The device that holds the session's memory.
    pub device: String,
    /// Cores to which the session's threads are pinned. Empty if it has no threads of its own and runs on any core.
    pub cores: Vec<usize>,
}

/// Receives failures of gpulets. A failed gpulet can no longer run batches, although it was not closed.
pub trait PartitionWatch: Send + Sync + 'static {
    /// Called once, from any thread. Must not block.
    fn failed(&self, lane: u32, reason: &str);
}

/// A device that can be partitioned into gpulets.
pub trait Device: Send + Sync {
    /// Description of the device.
    fn info(&self) -> &DeviceInfo;

    /// Opens a gpulet. It is closed when its last handle and its last session are dropped.
    ///
    /// # Errors
    /// Says why the gpulet cannot be opened. A failed call leaves nothing behind.
    fn open(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError>;

    /// Opens a gpulet whose batches run only while no other gpulet wants its units. It may share them with another gpulet.
    ///
    /// # Errors
    /// As [`Device::open`], and on devices that cannot do this.
    fn open_at_idle_priority(
        &self,
        _spec: &PartitionSpec,
        _watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        Err(DeviceError(format!("device `{}` has no idle priority", self.info().name)))
    }
}

/// An open gpulet. It loads sessions; one thread runs them, one batch at a time.
pub trait Partition: Send + Sync {
    /// Cores to which the thread that runs the sessions is pinned. Empty if it is not pinned.
    fn cores(&self) -> &[usize];

    /// Whether the thread that runs the sessions has idle priority.
    fn idle_priority(&self) -> bool {
        false
    }

    /// Where the loaded sessions can run. `None` if they end with the gpulet.
    fn core_set(&self) -> Option<CoreSet> {
        None
    }

    /// Loads a model, on a thread with background priority.
    ///
    /// # Errors
    /// Names the model and the cause.
    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError>;

    /// Makes a further session of a model whose graph and weights are in memory. `None`: sessions here need the files.
    ///
    /// # Errors
    /// Names the model and the cause.
    fn load_prepared(
        &self,
        _model: &PreparedModel,
        _options: &LoadOptions,
    ) -> Option<Result<Box<dyn Session>, DeviceError>> {
        None
    }
}
