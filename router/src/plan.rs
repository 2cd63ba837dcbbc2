//! Plans of lanes for the router.

use gpulet::LaneHandle;
use router_core::{LaneId, Switch, SwitchRefusal};

/// A plan of lanes that takes the place of the one in force.
#[derive(Clone, Default)]
pub struct LanePlan {
    /// The lanes that the router does not know yet: one handle for each of those in [`Switch::up`].
    pub new: Vec<LaneHandle>,
    /// What changes.
    pub switch: Switch,
}

/// Why a plan was rejected. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// It makes no sense.
    #[error(transparent)]
    Refused(#[from] SwitchRefusal),
    /// A lane that the router does not know came without a handle.
    #[error("new: no handle for lane {}, expected one for each lane that is not known", .0.0)]
    NoHandle(LaneId),
    /// A handle came twice, for a lane that the router has one of, or for one that does not come up.
    #[error("new: handle of lane {} is of no use, expected one for each lane in `up` that is not known", .0.0)]
    Handle(LaneId),
    /// The router has ended.
    #[error("the router has ended")]
    Ended,
}

/// Why a lane was not forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneDownError {
    /// It is not known, or the router has ended.
    #[error("lane {} is not known", .0.0)]
    Unknown(LaneId),
    /// It is active, or holds a batch still.
    #[error("lane {} is not idle, switch to a plan without it first", .0.0)]
    Busy(LaneId),
}
