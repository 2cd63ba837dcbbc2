//! Devices and the gpulets cut from them, whatever they are made of.

use std::sync::Arc;

use models::engine::Session;
use models::{LoadOptions, ModelFiles};
use serde::{Deserialize, Serialize};

/// What keeps a gpulet's work on its own units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compute {
    /// Nobody else's work runs there.
    Exclusive,
    /// It never has more than so many, and which they are is not said.
    UpperBound,
    /// The whole device, one at a time.
    TimeSlot,
    /// Nothing.
    None,
}

/// Whether gpulets of one device feel each other in something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// They do not.
    Isolated,
    /// They do.
    Shared,
}

/// Who keeps a gpulet within its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// The device.
    Hard,
    /// Whoever plans: nothing stops one that takes more.
    Accounted,
}

/// What a fault in one gpulet takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultDomain {
    /// Nothing else.
    Gpulet,
    /// All gpulets of its device.
    Device,
    /// The server.
    Process,
}

/// What a gpulet of another size costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resize {
    /// It is made beside the old one, in the same process.
    Live,
    /// A process.
    NewProcess,
    /// It cannot be had.
    Fixed,
}

/// What a device promises: plans are made from this and not from the name of what runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// Units.
    pub compute: Compute,
    /// Bandwidth to memory.
    pub memory_bandwidth: Sharing,
    /// The last level of cache.
    pub cache: Sharing,
    /// What moves tensors to the device and back.
    pub copy_engines: Sharing,
    /// Bytes.
    pub memory_capacity: Capacity,
    /// Faults.
    pub fault_domain: FaultDomain,
    /// Sizes.
    pub resize: Resize,
    /// Whether gpulets of an old and of a new plan may exist on the same units. That they do not run there at once is
    /// the router's affair.
    pub overlap: bool,
}

/// What is known of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// As plans call it: `cpu0`, `gpu0`.
    pub name: String,
    /// What runs it: `cpu-cores`, `emulated`, `cuda-green`.
    pub backend: &'static str,
    /// As profiles call devices like it.
    pub kind: String,
    /// The smallest shares that it can give.
    pub units: u32,
    /// Units that a gpulet may have, ascending.
    pub sizes: Vec<u32>,
    /// Bytes that models may take.
    pub memory_bytes: u64,
    /// What it promises.
    pub guarantees: Guarantees,
}

/// Which gpulet of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSpec {
    /// Number of the lane that will run it.
    pub lane: u32,
    /// Its first unit.
    pub first_unit: u32,
    /// How many it has.
    pub units: u32,
}

/// Why a gpulet could not be opened, or could not load a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

/// Where a session can run: sessions move between gpulets whose homes are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSet {
    /// The device that holds its memory.
    pub device: String,
    /// The cores that its threads stay on; empty where it has none of its own, so that any one core will do.
    pub cores: Vec<usize>,
}

/// Hears of gpulets that can run nothing any more although nobody closed them.
pub trait PartitionWatch: Send + Sync + 'static {
    /// Called once, from any thread; must not block.
    fn failed(&self, lane: u32, reason: &str);
}

/// Something that gpulets are cut from.
pub trait Device: Send + Sync {
    /// What is known of it.
    fn info(&self) -> &DeviceInfo;

    /// Opens a gpulet. It is closed when its last handle and its last session are dropped.
    ///
    /// # Errors
    /// Why it cannot be had; nothing of it is left then.
    fn open(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError>;
}

/// A gpulet: loads sessions, which one thread then runs, one batch at a time.
pub trait Partition: Send + Sync {
    /// Cores that the thread which runs its sessions stays on; empty: wherever the kernel likes.
    fn cores(&self) -> &[usize];

    /// Where the sessions that it loads can run; none where they end with it.
    fn core_set(&self) -> Option<CoreSet> {
        None
    }

    /// Loads a model, on a thread that gives way to those that serve.
    ///
    /// # Errors
    /// Names the model and says what was wrong.
    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError>;
}
