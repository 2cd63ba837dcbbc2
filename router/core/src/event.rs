//! What happens to the core and what it answers.

use serde::Serialize;
use smallvec::SmallVec;

use crate::{BatchId, Class, LaneId, LaneSpec, ModelId, ModelSpec, Nanos, RequestId, ShapeKey};

/// A request that wants in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// New name, unique among unfinished requests.
    pub request: RequestId,
    /// What to run.
    pub model: ModelId,
    /// Priority class.
    pub class: Class,
    /// Batch compatibility.
    pub shape: ShapeKey,
    /// Rows along the batch dimension, 1 to the model's `max_batch`.
    pub rows: u32,
    /// Payload bytes, counted against the memory bound while queued.
    pub bytes: u64,
    /// When the answer is worthless, if ever.
    pub deadline: Option<Nanos>,
}

/// A batch came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchReport {
    /// Where it ran.
    pub lane: LaneId,
    /// Which it was.
    pub batch: BatchId,
    /// Whether it gave results. A failed batch of several requests is run again one by one, so that one
    /// client's input cannot fail another's request.
    pub ok: bool,
}

/// Everything that can happen.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A request wants in.
    Arrive(Arrival),
    /// The client left.
    Cancel(RequestId),
    /// A lane finished a batch.
    BatchDone(BatchReport),
    /// A model version became ready.
    ModelUp(&'a ModelSpec),
    /// A model version takes no new requests; `Effect::Retired` follows when its last one ended.
    ModelDown(ModelId),
    /// A lane became available.
    LaneUp(LaneSpec),
    /// A lane is gone and what it ran is lost.
    LaneDown(LaneId),
    /// No new requests; queued ones may start until then.
    Drain {
        /// Time at which the queues are emptied by refusal.
        until: Nanos,
    },
    /// Nothing but time.
    Tick,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its batch gave results.
    Done,
    /// Never admitted, or refused later while it was queued.
    Refused,
    /// Its deadline passed while it was queued.
    Expired,
    /// The client left.
    Cancelled,
    /// It was started and failed.
    Failed,
}

/// Why a request ended that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It was answered.
    Answered,
    /// The model is not (or no longer) loaded.
    UnknownModel,
    /// More rows than the model's largest batch, or none.
    BatchTooLarge,
    /// The (model, class) queue is at its limit, or all requests together are.
    QueueFull,
    /// The payload bytes of queued requests are at their limit.
    MemoryFull,
    /// It cannot finish by its deadline any more.
    DeadlineUnmeetable,
    /// Its deadline passed.
    DeadlinePassed,
    /// The router is draining.
    Draining,
    /// No lane runs this model.
    NoLane,
    /// The client left.
    ClientGone,
    /// The engine failed.
    EngineFailed,
    /// The lane went down under it.
    LaneDied,
    /// The caller reused the id of an unfinished request, or one beyond the bound.
    IdInUse,
}

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run these requests as one batch, in this order.
    Dispatch {
        /// Where.
        lane: LaneId,
        /// Name for the report.
        batch: BatchId,
        /// What.
        model: ModelId,
        /// Rows in all.
        rows: u32,
        /// Requests.
        members: SmallVec<[RequestId; 8]>,
    },
    /// Answer this request and forget it.
    Finish {
        /// Which.
        request: RequestId,
        /// How it ended.
        outcome: Outcome,
        /// Why.
        reason: Reason,
    },
    /// No request of this model is left and none will come.
    Retired(ModelId),
}

/// Effects of one or more turns, in order. Kept by the caller so that its memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects(pub Vec<Effect>);

impl Effects {
    /// Takes the effects out, keeping the memory.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect> {
        self.0.drain(..)
    }
}
