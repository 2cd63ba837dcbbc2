//! Devices, gpulets and lanes. A gpulet is a share of a device. A lane is the thread that runs batches on a gpulet, one
//! at a time, with the sessions that were loaded for it.

#![forbid(unsafe_code)]

mod cores;
mod device;
mod emulated;
mod gather;
mod lane;
mod scatter;

pub use cores::{CoreError, CoresDevice, allowed_cores, pin_this_thread};
pub use device::{
    Capacity, Compute, CoreSet, Device, DeviceError, DeviceInfo, FaultDomain, Guarantees, Partition,
    PartitionSpec, PartitionWatch, Resize, Sharing, TimeSharing,
};
pub use emulated::{BatchTimes, EmulatedBatch, EmulatedDevice, Emulation};
pub use gather::gather;
pub use lane::{
    BatchError, BatchOutcome, LaneBatch, LaneConfig, LaneError, LaneFailed, LaneHandle, LaneReport, LaneSink,
    spawn_lane,
};
pub use models::engine::{Member, Response, RunError};
pub use scatter::scatter;
