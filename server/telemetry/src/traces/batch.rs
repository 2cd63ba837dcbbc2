//! Batches whose requests are still being collected.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Link;

use super::span;
use crate::attribute::{integer, text};
use crate::ids::DerivedIds;
use crate::request::{Batch, BatchId, Request};

/// Most batches that wait for further requests. Beyond that the oldest is exported early.
const BATCHES_MAX: usize = 1024;
/// Most requests that a batch links. Further ones are counted in the span.
const LINKS_MAX: usize = 128;
/// How long a batch waits for its requests after the first. They end within milliseconds of each other.
const WAIT: Duration = Duration::from_secs(1);

/// Batches with at least one kept request.
#[derive(Debug)]
pub(crate) struct Batches {
    open: HashMap<BatchId, Collected>,
    /// Batches in the order of their first request, with the time at which they are due.
    due: VecDeque<(Duration, BatchId)>,
    ids: DerivedIds,
}

#[derive(Debug)]
struct Collected {
    batch: Batch,
    model: Box<str>,
    version: Option<u64>,
    links: Vec<Link>,
    dropped_links: u32,
}

impl Batches {
    pub(crate) fn new(ids: DerivedIds) -> Self {
        Self { open: HashMap::new(), due: VecDeque::new(), ids }
    }

    /// The ids of the batch spans.
    pub(crate) fn ids(&self) -> DerivedIds {
        self.ids
    }

    /// Adds a kept request to its batch. Returns the span of an older batch if too many wait.
    pub(crate) fn add(&mut self, now: Duration, request: &Request) -> Option<Span> {
        let batch = request.batch?;
        let due = &mut self.due;
        let collected = self.open.entry(batch.id).or_insert_with(|| {
            due.push_back((now + WAIT, batch.id));
            let (model, version) = (request.model.clone(), request.version);
            Collected { batch, model, version, links: Vec::new(), dropped_links: 0 }
        });
        if collected.links.len() < LINKS_MAX {
            let context = &request.context;
            collected.links.push(span::link(context.trace_id, context.span_id, context.state.as_str()));
        } else {
            collected.dropped_links = collected.dropped_links.saturating_add(1);
        }
        if self.open.len() > BATCHES_MAX { self.take_first() } else { None }
    }

    /// When the next batch is due. `None` if no batch waits.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.due.front().map(|(due, _)| *due)
    }

    /// The spans of the batches that are due.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<Span> {
        let mut spans = Vec::new();
        while self.next_due().is_some_and(|due| due <= now) {
            spans.extend(self.take_first());
        }
        spans
    }

    fn take_first(&mut self) -> Option<Span> {
        let (_, id) = self.due.pop_front()?;
        let Collected { batch, model, version, links, dropped_links } = self.open.remove(&id)?;
        let mut attributes = vec![
            integer("tessera.batch.id", id.0),
            text("tessera.model", &model),
            integer("tessera.batch.rows", batch.rows),
            integer("tessera.lane", batch.lane),
        ];
        attributes.extend(version.map(|version| integer("tessera.model.version", version)));
        let times = (batch.started, batch.ended);
        Some(span::of_batch(self.ids.of(id.0), times, attributes, links, dropped_links))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::ids::IdSource;

    fn in_batch(ids: &IdSource, id: u64) -> Request {
        let request = example::request(ids);
        Request { batch: request.batch.map(|batch| Batch { id: BatchId(id), ..batch }), ..request }
    }

    #[test]
    fn a_batch_links_its_requests() {
        let ids = IdSource::new([1, 2]);
        let mut batches = Batches::new(DerivedIds::new(&ids));
        let requests = [in_batch(&ids, 7), in_batch(&ids, 8), in_batch(&ids, 7)];
        for request in &requests {
            assert_eq!(batches.add(Duration::ZERO, request), None);
        }
        assert_eq!(batches.add(Duration::ZERO, &example::refused(&ids)), None);
        assert!(batches.take_due(Duration::from_millis(999)).is_empty());
        assert_eq!(batches.next_due(), Some(WAIT));
        let spans = batches.take_due(WAIT);
        assert_eq!(spans.iter().map(|span| span.links.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(spans[0].links[1].span_id, requests[2].context.span_id.to_bytes());
        assert_eq!(spans[0].trace_id, batches.ids().of(7).0.to_bytes());
        assert_eq!(batches.next_due(), None);
    }

    #[test]
    fn links_and_batches_are_bounded() {
        let ids = IdSource::new([1, 2]);
        let mut batches = Batches::new(DerivedIds::new(&ids));
        for _ in 0..LINKS_MAX + 2 {
            batches.add(Duration::ZERO, &in_batch(&ids, 0));
        }
        for id in 1..BATCHES_MAX as u64 {
            assert_eq!(batches.add(Duration::ZERO, &in_batch(&ids, id)), None);
        }
        let oldest = batches.add(Duration::ZERO, &in_batch(&ids, u64::MAX)).unwrap();
        assert_eq!((oldest.links.len(), oldest.dropped_links_count), (LINKS_MAX, 2));
        assert_eq!(batches.open.len(), BATCHES_MAX);
    }
}
