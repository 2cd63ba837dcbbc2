//! Traces: what the server records of ended requests, on its way to the collector.

mod batch;
mod span;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::export::{Rejected, Signal};
use crate::ids::{DerivedIds, IdSource};
use crate::request::{Ended, Request};
use crate::resource::{Resource, scope};
use crate::sampling::{Cause, Decision, Sampler};
use crate::signal::SignalName;
use crate::statistics::{Dropped, Statistics};
use batch::Batches;

/// A request that becomes spans.
#[derive(Debug)]
pub(crate) struct Kept {
    request: Request,
    cause: Cause,
}

/// Where ended requests enter.
#[derive(Debug)]
pub(crate) struct Recorder {
    sampler: Mutex<Sampler>,
    started: Instant,
    queue: mpsc::Sender<Kept>,
    statistics: Arc<Statistics>,
}

impl Recorder {
    pub(crate) fn new(sampler: Sampler, queue: mpsc::Sender<Kept>, statistics: Arc<Statistics>) -> Self {
        Self { sampler: Mutex::new(sampler), started: Instant::now(), queue, statistics }
    }

    pub(crate) fn record(&self, ended: &Ended<'_>, request: impl FnOnce() -> Request) {
        let now = self.started.elapsed();
        let decision = self.sampler.lock().unwrap_or_else(PoisonError::into_inner).decide(now, ended);
        self.statistics.sampled(decision);
        let Decision::Keep(cause) = decision else { return };
        match self.queue.try_reserve() {
            Ok(place) => place.send(Kept { request: request(), cause }),
            Err(_) => {
                let spans = span::count(&request());
                self.statistics.signal(SignalName::Traces).dropped(Dropped::QueueFull, spans);
            }
        }
    }
}

/// Makes spans of kept requests.
#[derive(Debug)]
pub(crate) struct Traces {
    resource: Resource,
    ids: Arc<IdSource>,
    batches: Batches,
    started: Instant,
}

impl Traces {
    pub(crate) fn new(resource: Resource, ids: Arc<IdSource>) -> Self {
        let batches = Batches::new(DerivedIds::new(&ids));
        Self { resource, ids, batches, started: Instant::now() }
    }
}

impl Signal for Traces {
    type Item = Kept;
    const NAME: SignalName = SignalName::Traces;

    fn due(&self) -> Option<Instant> {
        self.batches.next_due().map(|due| self.started + due)
    }

    fn encode(&mut self, items: Vec<Kept>, all: bool) -> (u64, Vec<u8>) {
        let now = self.started.elapsed();
        let mut spans: Vec<Span> = Vec::with_capacity(items.len() * 3);
        for Kept { request, cause } in items {
            spans.extend(self.batches.add(now, &request));
            spans.extend(span::of_request(&request, cause, &self.ids, self.batches.ids()));
        }
        let due = if all { Duration::MAX } else { now };
        spans.extend(self.batches.take_due(due));
        let count = spans.len() as u64;
        let scope_spans = ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() };
        let resource_spans = ResourceSpans {
            resource: Some(self.resource.message()),
            scope_spans: vec![scope_spans],
            ..ResourceSpans::default()
        };
        let message = ExportTraceServiceRequest { resource_spans: vec![resource_spans] };
        (count, message.encode_to_vec())
    }

    fn rejected(response: &[u8]) -> Option<Rejected> {
        let partial = ExportTraceServiceResponse::decode(response).ok()?.partial_success?;
        Rejected::new(partial.rejected_spans, partial.error_message)
    }
}
