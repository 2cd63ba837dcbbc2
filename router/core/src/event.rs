//! Events that the core receives and effects that it returns.

use serde::Serialize;

use crate::{
    BatchId, Class, FamilyId, FamilySpec, LaneId, LaneSpec, ModelId, ModelSpec, Nanos, PipelineId,
    PipelineSpec, Position, RequestId, ShapeKey, Switch, SwitchRefusal, Tenant, TenantTable,
};

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its id, unique among unfinished requests.
    pub request: RequestId,
    /// Model to run.
    pub model: ModelId,
    /// Priority class.
    pub class: Class,
    /// Tenant that sent it.
    pub tenant: Tenant,
    /// Requests with equal keys may share a batch.
    pub shape: ShapeKey,
    /// Rows along the batch dimension, 1 to the model's `max_batch`.
    pub rows: u32,
    /// Payload bytes, counted against the memory bound while queued.
    pub bytes: u64,
    /// Time after which the answer is worthless, if there is one.
    pub deadline: Option<Nanos>,
    /// What happens if it cannot meet its deadline.
    pub timeout_action: TimeoutAction,
    /// Where in its pipeline it is. `deadline` is then the deadline of the whole pipeline.
    pub pipeline: Option<Position>,
}

/// What happens to a queued request that cannot meet its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutAction {
    /// It is rejected.
    #[default]
    Reject,
    /// It loses its deadline and waits behind all requests of its class that can still meet theirs or have none. Waiting
    /// for `RouterConfig::starvation` ends this.
    Delay,
}

/// The end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchReport {
    /// Lane that ran it.
    pub lane: LaneId,
    /// The batch.
    pub batch: BatchId,
    /// Whether it returned results. A failed batch of several requests is run again one by one, so that one
    /// client's input cannot fail another's request.
    pub ok: bool,
}

/// Everything that can happen.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A request arrived.
    Arrive(Arrival),
    /// A request to a family arrived, for the variant that [`Router::choose`](crate::Router::choose) gave it.
    ArriveAtVariant(Arrival, FamilyId),
    /// Requests that arrived together, from a sender that forms batches. Each is admitted or refused by itself, and no batch
    /// starts before all of them are queued.
    ArriveTogether(&'a [Arrival]),
    /// A stage of a pipeline ended, and these requests are the next stages' of the same request. They are not counted against the
    /// request rate of their tenant again, and no batch starts before all of them are queued.
    StageDone(&'a [Arrival]),
    /// The client left.
    Cancel(RequestId),
    /// A lane finished a batch.
    BatchDone(BatchReport),
    /// A lane returned a batch unfinished, because it was preempted or came too late. Its work is lost, and its requests
    /// wait again.
    BatchReturned {
        /// Lane that held it.
        lane: LaneId,
        /// The batch.
        batch: BatchId,
    },
    /// A model version became ready.
    ModelUp(&'a ModelSpec),
    /// Settings of a model version changed. Its lanes and the batch times known of it stay as they are. Ignored for an unknown
    /// model, which may have retired.
    ModelChanged(&'a ModelSpec),
    /// A model version takes no new requests. `Effect::Retired` follows when its last request ended.
    ModelDown(ModelId),
    /// A pipeline became known, or changed. What was learned of its stages stays if their number does.
    PipelineUp(&'a PipelineSpec),
    /// A pipeline is forgotten. Requests of its stages go on as if each were alone.
    PipelineDown(PipelineId),
    /// A family became known, or changed. Its level stays.
    FamilyUp(&'a FamilySpec),
    /// A family is forgotten. Its requests go on.
    FamilyDown(FamilyId),
    /// Weights and quotas of tenants changed. What tenants used, and the tokens that are left, stay as they are, up to the new
    /// bursts.
    TenantsChanged(&'a TenantTable),
    /// A lane became available.
    LaneUp(LaneSpec),
    /// A lane was removed. Its running batch fails; an idle lane has none.
    LaneDown(LaneId),
    /// A lane failed, and the caller still has the requests that it ran. Each waits again and runs alone on another lane,
    /// unless it was also present when another lane failed. The lane is removed.
    LaneFailed(LaneId),
    /// Applies a new plan of lanes atomically, or rejects it.
    Switch(&'a Switch),
    /// Rejects new requests. Queued ones may start until the given time.
    Drain {
        /// Time at which the requests that are still queued are rejected.
        until: Nanos,
    },
    /// Time passed.
    Tick,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its batch returned results.
    Done,
    /// It was rejected on arrival, or later while it was queued.
    Refused,
    /// Its deadline passed while it was queued.
    Expired,
    /// The client left.
    Cancelled,
    /// It was started and failed.
    Failed,
}

/// Why a request ended as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It was answered.
    Answered,
    /// The model is not loaded.
    UnknownModel,
    /// More rows than the model's largest batch, or none.
    BatchTooLarge,
    /// The tenant has as many requests queued for the model and class as it may, or all requests together are at
    /// their limit.
    QueueFull,
    /// The payload bytes of queued requests are at their limit.
    MemoryFull,
    /// It can no longer finish by its deadline.
    DeadlineUnmeetable,
    /// Answering it would have made several others late.
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
    /// The lane that ran it failed.
    LaneFailed,
    /// Two lanes failed while they ran it. It may be the cause, so it is not run again.
    LaneFailedTwice,
    /// It does not start its sequence, and the sequence is not known.
    SequenceNotStarted,
    /// An earlier request of its sequence did not run.
    SequenceEnded,
    /// The caller reused the id of an unfinished request, or one beyond the bound.
    IdInUse,
    /// Its tenant has used up its quota.
    Quota,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run these requests as one batch, in this order.
    Dispatch {
        /// Lane that runs the batch.
        lane: LaneId,
        /// Its id, for the report.
        batch: BatchId,
        /// Model of all requests in the batch.
        model: ModelId,
        /// Rows of all requests together.
        rows: u32,
        /// Its requests: see [`Effects::members`].
        members: Members,
    },
    /// End this batch and return it (`Event::BatchReturned`), if that is still possible. Otherwise report its end as usual.
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
    /// The last request of a retiring model ended.
    Retired(ModelId),
    /// The plan of lanes was switched.
    Switched,
    /// The plan of lanes is not valid. Nothing changed.
    SwitchRefused(SwitchRefusal),
    /// A draining lane holds no batch any more.
    LaneIdle(LaneId),
}

/// The requests of a dispatched batch: their range among the members of an [`Effects`].
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
    /// The effects in the order in which they must be carried out.
    pub fn iter(&self) -> std::slice::Iter<'_, Effect> {
        self.list.iter()
    }

    /// Whether there are no effects.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The requests of a batch of these effects, in the order of their rows.
    pub fn members(&self, members: Members) -> &[RequestId] {
        self.members.get(members.from as usize..members.to as usize).unwrap_or_default()
    }

    /// Removes all effects and keeps the memory.
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
