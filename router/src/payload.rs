//! The payloads of requests by slot, which the core does not see.

use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use gpulet::Member;
use router_core::{RequestId, Tenant};
use tokio::sync::oneshot;

use crate::job::{Answer, Rejection};

/// The channel for the answer of one request.
pub(crate) type Reply = oneshot::Sender<Result<Answer, Rejection>>;

/// A request's inputs and the channel to its client.
pub(crate) struct Payload {
    pub id: RequestId,
    pub tenant: Tenant,
    /// On the lane while the request is in flight.
    pub member: Option<Member>,
    pub reply: Reply,
    pub admitted: Instant,
    pub dispatched: Instant,
}

/// Unused request ids. There are as many as requests may be unfinished, so an empty stock enforces that bound.
pub(crate) struct Ids(ArrayQueue<RequestId>);

impl Ids {
    pub(crate) fn new(count: u32) -> Self {
        let stock = ArrayQueue::new(count.max(1) as usize);
        for slot in 0..count {
            // The stock holds exactly `count`.
            let _ = stock.push(RequestId::new(slot, 0));
        }
        Self(stock)
    }

    pub(crate) fn take(&self) -> Option<RequestId> {
        self.0.pop()
    }

    /// Gives a finished request's slot back under a new generation.
    pub(crate) fn give_back(&self, id: RequestId) {
        let _ = self.0.push(RequestId::new(id.slot(), id.generation().wrapping_add(1)));
    }
}

/// Payloads of unfinished requests.
#[derive(Default)]
pub(crate) struct Payloads(Vec<Option<Payload>>);

impl Payloads {
    pub(crate) fn insert(&mut self, payload: Payload) {
        let slot = payload.id.slot() as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        if let Some(entry) = self.0.get_mut(slot) {
            *entry = Some(payload);
        }
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut Payload> {
        self.0.get_mut(id.slot() as usize).and_then(Option::as_mut).filter(|payload| payload.id == id)
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Payload> {
        self.0.get_mut(id.slot() as usize)?.take_if(|payload| payload.id == id)
    }
}
