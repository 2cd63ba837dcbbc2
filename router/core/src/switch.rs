//! A plan of lanes that takes the place of another while requests are queued and batches run.

use crate::{LaneClass, LaneId, LaneSpec, ModelId, ModelLanes, ProfilePoint};

/// Adds lanes, removes lanes and moves models in one event.
///
/// No request is lost: batches in flight end on their lanes, and queued requests move with their models in the order
/// of their deadlines. Old and new lanes may overlap in what they run on, since at most one of them
/// executes there at a time (see [`LaneUp::after`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// Lanes that take batches from now on.
    pub up: Vec<LaneUp>,
    /// Lanes that are given nothing more. What they hold ends normally; then `Effect::LaneIdle` follows, once. They
    /// stay known, so that a later switch may bring them back, until `Event::LaneDown` forgets them.
    pub drain: Vec<LaneId>,
    /// Models that run on other lanes from now on. A model for which that leaves no active lane has its queued
    /// requests refused as `no_lane`.
    pub models: Vec<ModelMove>,
}

/// A lane of the new plan: one that is new, one that comes back from rest, or one that goes on under another cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneUp {
    /// What it is.
    pub spec: LaneSpec,
    /// Lanes that it follows: every idle lane, or lane that this switch drains, that uses cores or SMs of this one. The
    /// lane gets no batch while one of them holds one. Naming a removed lane has no effect.
    pub after: Vec<LaneId>,
}

/// A model and the lanes that run it from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMove {
    /// Which; retiring ones may move too.
    pub model: ModelId,
    /// Where to.
    pub lanes: ModelLanes,
    /// How long its batches should take on kinds of lanes. Of kinds on which some have run, nothing is changed.
    pub times: Vec<LaneClassTimes>,
}

/// Batch times of a model on lanes of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneClassTimes {
    /// Lane class of the times.
    pub lane_class: LaneClass,
    /// As of a profile.
    pub profile: Vec<ProfilePoint>,
}

/// Why a switch changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchRefusal {
    /// A lane that is to rest is not known.
    #[error("drain: lane {} is not known, expected a lane that is up, draining or idle", .0.0)]
    UnknownLane(LaneId),
    /// A model that is to move is not loaded.
    #[error("models: model {} is not loaded, expected a loaded model", .0.0)]
    UnknownModel(ModelId),
    /// A lane is named twice, in one list or in both.
    #[error("up, drain: lane {} is named twice, expected once", .0.0)]
    LaneTwice(LaneId),
    /// A model is named twice.
    #[error("models: model {} is named twice, expected once", .0.0)]
    ModelTwice(ModelId),
    /// A lane's id is not below `RouterConfig::max_lanes`.
    #[error("up: lane {} is out of bounds, expected an id below `max_lanes`", .0.0)]
    LaneBeyondBound(LaneId),
    /// A lane would wait for a lane that is never sure to be empty: itself, or one that takes batches too.
    #[error("up: lane {} comes after lane {}, which would be active too, expected an idle or draining lane", .lane.0, .after.0)]
    AfterActive {
        /// Which would wait.
        lane: LaneId,
        /// What for.
        after: LaneId,
    },
}

/// What a lane is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// It is given batches.
    Active,
    /// It will be, once the lanes that it comes after hold nothing.
    Waiting,
    /// It is given nothing more and holds a batch still.
    Draining,
    /// It holds nothing and is given nothing.
    Idle,
}
