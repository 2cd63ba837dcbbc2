//! What happens to the core and what it answers.

use serde::Serialize;

use crate::{
    BatchId, Class, LaneId, LaneSpec, ModelId, ModelSpec, Nanos, RequestId, ShapeKey, Switch, SwitchRefusal,
    Tenant,
};

/// A request that wants in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// New name, unique among unfinished requests.
    pub request: RequestId,
    /// What to run.
    pub model: ModelId,
    /// Priority class.
    pub class: Class,
    /// Who pays.
    pub tenant: Tenant,
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
    /// A lane gave a batch back that it had not finished, because it was preempted or because it came too late;
    /// whatever had been done of it is lost. Its requests wait again.
    BatchReturned {
        /// Where it was.
        lane: LaneId,
        /// Which it was.
        batch: BatchId,
    },
    /// A model version became ready.
    ModelUp(&'a ModelSpec),
    /// A model version takes no new requests; `Effect::Retired` follows when its last one ended.
    ModelDown(ModelId),
    /// A lane became available.
    LaneUp(LaneSpec),
    /// A lane was removed. Its running batch fails; an idle lane has none.
    LaneDown(LaneId),
    /// A lane failed, and the caller still has the requests that it ran. Each waits again and runs alone on another lane,
    /// unless it was also present when another lane failed. The lane is removed.
    LaneFailed(LaneId),
    /// Applies a new plan of lanes atomically, or rejects it.
    Switch(&'a Switch),
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
    /// The tenant has as many requests queued for the model and class as it may, or all requests together are at
    /// their limit.
    QueueFull,
    /// The payload bytes of queued requests are at their limit.
    MemoryFull,
    /// It cannot finish by its deadline any more.
    DeadlineUnmeetable,
    /// It could only have been answered by making several others late.
    Shed,
    /// Its deadline passed.
    DeadlinePassed,
    /// The router is draining.
    Draining,
    /// No lane runs this model.
    NoLane,
    /// The client left.
    ClientDisconnected,
    /// The engine failed.
    EngineFailed,
    /// The lane went down under it.
    LaneFailed,
    /// Two lanes were lost while they ran it: it may be the cause, and is not run again.
    LaneFailedTwice,
    /// The caller reused the id of an unfinished request, or one beyond the bound.
    IdInUse,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run these requests as one batch, in this order.
    Dispatch {
        /// Lane that runs the batch.
        lane: LaneId,
        /// Name for the report.
        batch: BatchId,
        /// Model of all requests in the batch.
        model: ModelId,
        /// Rows of all requests together.
        rows: u32,
        /// Requests, to be read with [`Effects::members`].
        members: Members,
    },
    /// Give this batch back if that is still possible (`Event::BatchReturned`); if not, its report will do.
    Preempt {
        /// Lane that runs it.
        lane: LaneId,
        /// Batch to end.
        batch: BatchId,
    },
    /// Answer this request and forget it.
    Finish {
        /// Request that ends.
        request: RequestId,
        /// How it ended.
        outcome: Outcome,
        /// Why it ended this way.
        reason: Reason,
    },
    /// No request of this model is left and none will come.
    Retired(ModelId),
    /// The plan of lanes was switched.
    Switched,
    /// The plan of lanes makes no sense; nothing changed.
    SwitchRefused(SwitchRefusal),
    /// A lane that was put to rest holds nothing any more.
    LaneIdle(LaneId),
}

/// The requests of a dispatched batch: where they are among the members of an [`Effects`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// Effects of one or more events, in order. The caller keeps the value to reuse its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    list: Vec<Effect>,
    members: Vec<RequestId>,
}

impl Effects {
    /// In the order in which they are to be carried out.
    pub fn iter(&self) -> std::slice::Iter<'_, Effect> {
        self.list.iter()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The requests of a batch of these effects, in the order of their rows.
    pub fn members(&self, members: Members) -> &[RequestId] {
        self.members.get(members.from as usize..members.to as usize).unwrap_or_default()
    }

    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.members.clear();
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.list.push(effect);
    }

    pub(crate) fn push_members(&mut self, ids: &[RequestId]) -> Members {
        let from = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.members.extend_from_slice(ids);
        Members { from, to: u32::try_from(self.members.len()).unwrap_or(u32::MAX) }
    }
}

impl<'a> IntoIterator for &'a Effects {
    type Item = &'a Effect;
    type IntoIter = std::slice::Iter<'a, Effect>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
