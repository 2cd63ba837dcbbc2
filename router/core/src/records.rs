//! The last decisions and their reasons, so that "why?" can be answered afterwards.

use serde::Serialize;

use crate::batch::StartReason;
use crate::forecast::Forecast;
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
        /// What was expected of it when it came.
        forecast: Forecast,
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

/// The decisions about a request that are still on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its end.
    pub end: Record,
    /// The start of the batch that ran it.
    pub start: Option<Record>,
    /// Requests that ended with the same batch, this one excepted.
    pub companions: Vec<RequestId>,
}

/// A decision with its position among all decisions.
type Noted = (u64, Record);

/// The most recent decisions of a kind, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ring {
    ring: Vec<Noted>,
    next: usize,
}

impl Ring {
    fn push(&mut self, limit: usize, record: Noted) {
        if self.ring.len() < limit {
            self.ring.push(record);
        } else if let Some(oldest) = self.ring.get_mut(self.next) {
            *oldest = record;
            self.next = (self.next + 1) % limit;
        }
    }

    fn parts(&self) -> [&[Noted]; 2] {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        [older, newer]
    }

    /// Those of a moment.
    fn at(&self, at: Nanos) -> impl Iterator<Item = &Record> {
        self.parts().into_iter().flat_map(move |part| {
            let first = part.partition_point(|(_, record)| record.at < at);
            part.iter().skip(first).map(|(_, record)| record).take_while(move |record| record.at == at)
        })
    }

    /// The last one up to a moment for which `wanted` holds.
    fn last_until(&self, at: Nanos, wanted: impl Fn(&Record) -> bool) -> Option<Record> {
        let [older, newer] = self.parts();
        let until = |part: &[Noted]| part.partition_point(|(_, record)| record.at <= at);
        let newest_first = newer.iter().take(until(newer)).rev().chain(older.iter().take(until(older)).rev());
        newest_first.map(|(_, record)| record).find(|record| wanted(record)).copied()
    }
}

/// The most recent decisions. Requests that were answered in time do not displace the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    limit: usize,
    noted: u64,
    starts: Ring,
    in_time: Ring,
    others: Ring,
}

impl Records {
    pub(crate) fn new(limit: u32) -> Self {
        let (starts, in_time, others) = Default::default();
        Self { limit: limit as usize, noted: 0, starts, in_time, others }
    }

    pub(crate) fn note(&mut self, at: Nanos, decided: Decided) {
        self.noted += 1;
        let ring = match decided {
            Decided::Dispatch { .. } | Decided::Preempt { .. } => &mut self.starts,
            Decided::End { outcome: Outcome::Done, deadline, .. } if at <= deadline => &mut self.in_time,
            Decided::End { .. } => &mut self.others,
        };
        ring.push(self.limit, (self.noted, Record { at, decided }));
    }

    /// Oldest first.
    pub(crate) fn all(&self) -> Vec<Record> {
        let rings = [&self.starts, &self.in_time, &self.others];
        let mut all: Vec<_> = rings.into_iter().flat_map(|ring| ring.ring.iter().copied()).collect();
        all.sort_unstable_by_key(|(position, _)| *position);
        all.into_iter().map(|(_, record)| record).collect()
    }

    /// The decisions about a request that ended at `ended`; `None` if its end is not on record.
    pub(crate) fn explain(&self, request: RequestId, ended: Nanos) -> Option<Explanation> {
        let ends = || self.in_time.at(ended).chain(self.others.at(ended));
        let of = |record: &Record| match record.decided {
            Decided::End { request, batch, .. } => Some((request, batch)),
            Decided::Dispatch { .. } | Decided::Preempt { .. } => None,
        };
        let end = ends().copied().find(|record| of(record).is_some_and(|(id, _)| id == request))?;
        let ran_in = of(&end).and_then(|(_, batch)| batch);
        let of_batch = |record: &Record| matches!(record.decided, Decided::Dispatch { batch, .. } if Some(batch) == ran_in);
        let start = ran_in.and_then(|_| self.starts.last_until(ended, of_batch));
        let together = ends().filter_map(of).filter(|&(id, batch)| batch == ran_in && id != request);
        let companions = if ran_in.is_some() { together.map(|(id, _)| id).collect() } else { Vec::new() };
        Some(Explanation { end, start, companions })
    }
}
