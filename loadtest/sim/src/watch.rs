//! Checks the invariants of the router's effects, R1, R2 and R9, and keeps a trace of the last events.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

use router_core::{BatchId, Nanos, RequestId};

use crate::error::Breach;
use crate::inflight::InFlight;

/// Running batches and their requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    running: BTreeMap<BatchId, Vec<RequestId>>,
    /// Whether the request of each slot is in a batch.
    started: Vec<bool>,
}

impl Watch {
    fn mark(&mut self, request: RequestId, started: bool) {
        let slot = request.slot() as usize;
        if slot >= self.started.len() {
            self.started.resize(slot + 1, false);
        }
        match self.started.get_mut(slot) {
            Some(entry) => *entry = started,
            None => invariant::violated!("sim.request_without_mark"),
        }
    }

    fn is_started(&self, request: RequestId) -> bool {
        self.started.get(request.slot() as usize).copied().unwrap_or(false)
    }

    pub(crate) fn dispatched(
        &mut self,
        now: Nanos,
        batch: BatchId,
        members: &[RequestId],
        requests: &InFlight,
    ) -> Result<(), Breach> {
        Breach::unless(!members.is_empty(), "R9", || format!("{batch:?} has no requests"))?;
        for &member in members {
            let request = requests.get(member);
            let Some(request) = request.filter(|_| !self.is_started(member)) else {
                return Err(Breach {
                    id: "R9",
                    detail: format!("{batch:?} has {member:?}, which does not wait"),
                });
            };
            Breach::unless(request.deadline.is_none_or(|deadline| now < deadline), "R2", || {
                format!("{batch:?} has {member:?}, whose deadline was {:?}", request.deadline)
            })?;
            self.mark(member, true);
        }
        let before = self.running.insert(batch, members.to_vec());
        Breach::unless(before.is_none(), "R1", || format!("{batch:?} was started twice"))
    }

    pub(crate) fn finished(&mut self, request: RequestId) {
        self.mark(request, false);
    }

    /// Removes a batch that ended in any way. Its unfinished requests are waiting again.
    pub(crate) fn ended(&mut self, batch: BatchId) {
        for member in self.running.remove(&batch).unwrap_or_default() {
            self.mark(member, false);
        }
    }
}

/// Number of lines that a trace keeps.
const LINES: usize = 64;

/// The last events and effects as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(VecDeque<String>);

impl Trace {
    pub(crate) fn note(&mut self, now: u64, what: &dyn Debug) {
        if self.0.len() >= LINES {
            self.0.pop_front();
        }
        self.0.push_back(format!("{now} ns {what:?}"));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inflight::{Part, Request};

    #[test]
    fn what_must_not_start_is_named() {
        let (mut watch, mut requests) = (Watch::default(), InFlight::default());
        let due = |deadline| Request {
            arrived: 0,
            deadline: Some(Nanos(deadline)),
            model: 0,
            tenant: 0,
            rows: 1,
            part: Part::None,
        };
        let (first, second) = (requests.insert(due(10)), requests.insert(due(20)));
        let mut start = |now, batch, members: &[RequestId]| {
            watch.dispatched(Nanos(now), BatchId(batch), members, &requests).map_err(|breach| breach.id)
        };
        assert_eq!(start(10, 1, &[first]), Err("R2"));
        assert_eq!(start(9, 1, &[]), Err("R9"));
        assert_eq!(start(9, 1, &[first]), Ok(()));
        assert_eq!(start(9, 2, &[second, first]), Err("R9"), "it runs already");
        assert_eq!(start(9, 3, &[RequestId::new(7, 0)]), Err("R9"), "unknown request");
    }

    #[test]
    fn requests_of_a_batch_that_came_back_may_start_again() {
        let (mut watch, mut requests) = (Watch::default(), InFlight::default());
        let one = requests.insert(Request {
            arrived: 0,
            deadline: None,
            model: 0,
            tenant: 0,
            rows: 1,
            part: Part::None,
        });
        watch.dispatched(Nanos(1), BatchId(1), &[one], &requests).unwrap();
        watch.ended(BatchId(1));
        watch.dispatched(Nanos(2), BatchId(2), &[one], &requests).unwrap();
    }
}
