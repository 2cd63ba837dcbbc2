//! The last decisions and their reasons, so that "why?" can be answered afterwards.

use serde::Serialize;

use crate::batch::StartReason;
use crate::{BatchId, LaneId, ModelId, Nanos, Outcome, Reason, RequestId};

/// How a batch got its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneChoice {
    /// The free lane of the smallest id, so that the others stay idle and may be given back.
    SmallestFree,
    /// The only lane that may run it.
    Only,
    /// A free lane with a cycle, in the model's time slice.
    Cycle,
    /// The lane with a token that lacks most of its guaranteed time.
    Token,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "decision")]
pub enum Decided {
    /// A batch was started.
    Dispatch {
        /// Batch that started.
        batch: BatchId,
        /// Its model.
        model: ModelId,
        /// Lane that runs it.
        lane: LaneId,
        /// Why there.
        chosen: LaneChoice,
        /// Rows in it.
        rows: u32,
        /// Rows of the same kind that were left waiting.
        left: u32,
        /// Requests dropped so that the others could be answered.
        shed: u32,
        /// Why now and this many.
        reason: StartReason,
        /// Time that it should take.
        expected: Nanos,
    },
    /// A running batch was preempted for a larger one.
    Preempt {
        /// Preempted batch.
        batch: BatchId,
        /// Lane that runs it.
        lane: LaneId,
        /// Rows that are lost for now.
        rows: u32,
        /// Rows that want the lane.
        wanted: u32,
    },
    /// A request ended.
    End {
        /// Request that ended.
        request: RequestId,
        /// Of which model.
        model: ModelId,
        /// The batch that ran it, if one did.
        batch: Option<BatchId>,
        /// When it came.
        arrived: Nanos,
        /// When its answer would be worthless.
        deadline: Nanos,
        /// Kind of end.
        outcome: Outcome,
        /// Cause of the end.
        reason: Reason,
    },
}

/// A decision and when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Time of the decision.
    pub at: Nanos,
    /// The decision.
    #[serde(flatten)]
    pub decided: Decided,
}

/// A bounded ring of the most recent decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    ring: Vec<Record>,
    limit: usize,
    next: usize,
}

impl Records {
    pub(crate) fn new(limit: u32) -> Self {
        Self { ring: Vec::new(), limit: limit as usize, next: 0 }
    }

    pub(crate) fn note(&mut self, at: Nanos, decided: Decided) {
        let record = Record { at, decided };
        if self.ring.len() < self.limit {
            self.ring.push(record);
        } else if let Some(oldest) = self.ring.get_mut(self.next) {
            *oldest = record;
            self.next = (self.next + 1) % self.limit;
        }
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Record> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }
}
