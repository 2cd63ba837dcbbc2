//! Devices and lanes. A lane is a set of cores with one thread that owns its sessions and runs one batch after
//! another; it is the smallest thing that a plan can move.

#![forbid(unsafe_code)]

mod cores;
mod gather;
mod lane;
mod scatter;

pub use cores::{CoreError, allowed_cores, pin_this_thread};
pub use lane::{
    BatchError, BatchOutcome, LaneBatch, LaneConfig, LaneError, LaneGone, LaneHandle, LaneReport, LaneSink,
    Member, spawn_lane,
};
