//! A plan of lanes that takes the place of another while requests are queued and batches run.

use crate::{LaneId, LaneKind, LaneSpec, ModelId, ModelLanes, ProfilePoint};

/// Lanes that come, lanes that go and models that move, all in one turn.
///
/// No request is lost by it: batches in flight end where they are, and queued requests move with their models in
/// the order of their deadlines. Old and new lanes may overlap in what they run on, since at most one of them
/// executes there at a time (see [`LaneUp::after`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// Lanes that take batches from now on.
    pub up: Vec<LaneUp>,
    /// Lanes that are given nothing more. What they hold ends normally; then `Effect::LaneAtRest` follows, once. They
    /// stay known, so that a later switch may bring them back, until `Event::LaneDown` forgets them.
    pub rest: Vec<LaneId>,
    /// Models that run on other lanes from now on. A model for which that leaves no active lane has its queued
    /// requests refused as `no_lane`.
    pub models: Vec<ModelMove>,
}

/// A lane of the new plan: one that is new, one that comes back from rest, or one that goes on under another cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneUp {
    /// What it is. A lane that is known keeps its depth.
    pub spec: LaneSpec,
    /// Its lease: every lane at rest, or put there by the same switch, that runs on cores or SMs of this one. It is
    /// given nothing while one of them holds a batch. Lanes that are gone hold nothing; to name them does no harm.
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
    pub times: Vec<KindTimes>,
}

/// Batch times of a model on lanes of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindTimes {
    /// Which.
    pub kind: LaneKind,
    /// As of a profile.
    pub profile: Vec<ProfilePoint>,
}

/// Why a switch changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchRefusal {
    /// A lane that is to rest is not known.
    #[error("rest: lane {} is not known, expected one that is up or at rest", .0.0)]
    UnknownLane(LaneId),
    /// A model that is to move is not loaded.
    #[error("models: model {} is not loaded, expected one that is", .0.0)]
    UnknownModel(ModelId),
    /// A lane is named twice, in one list or in both.
    #[error("up, rest: lane {} is named twice, expected once in either", .0.0)]
    LaneTwice(LaneId),
    /// A model is named twice.
    #[error("models: model {} is named twice, expected once", .0.0)]
    ModelTwice(ModelId),
    /// A lane's id is not below `RouterConfig::max_lanes`.
    #[error("up: lane {} is beyond the bound, expected an id below max_lanes", .0.0)]
    LaneBeyondBound(LaneId),
    /// A new lane may hold nothing, or a known one something else than before.
    #[error("up: lane {} has a depth of 0 or another than before, expected at least 1 and no change", .0.0)]
    Depth(LaneId),
    /// A lane would wait for a lane that is never sure to be empty: itself, or one that takes batches too.
    #[error("up: lane {} comes after lane {} that would be active too, expected one at rest", .lane.0, .after.0)]
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
    Emptying,
    /// It holds nothing and is given nothing.
    AtRest,
}
