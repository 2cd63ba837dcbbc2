//! The last requests, for `GET /v2/explain`, and the access log.
//!
//! Requests that were answered in time are kept apart from the others, which therefore stay longer.
//!
//! Hot path.

mod access_log;
mod entry;
mod explanation;
mod query;
mod spans;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use router::RouterHandle;

pub use access_log::AccessLog;
pub use entry::{Entry, Span, StageEntry};
pub use explanation::{Explanation, PipelineStage};
pub use query::Query;
pub use spans::Spans;
pub use telemetry::Outcome;

use crate::config::RequestLogSettings;
use crate::metrics::Transport;
use crate::reason::{Reason, Refusal};
use crate::tenants::{RequestTenant, TenantNames};

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Its id: the client's `x-request-id`, or ours.
    pub id: &'a str,
    /// When its first byte arrived.
    pub arrived: Instant,
    /// How it came.
    pub transport: Transport,
    /// Whose request it is.
    pub tenant: RequestTenant,
    /// The trace that it is part of. `None`: it is not traced.
    pub span: Option<&'a Arc<Span>>,
}

/// The log. Bounded: each ring holds as many requests as `request_log.kept`.
#[derive(Default)]
pub struct RequestLog {
    kept: usize,
    in_time: Mutex<VecDeque<Entry>>,
    others: Mutex<VecDeque<Entry>>,
    access_log: Option<AccessLog>,
    tenants: TenantNames,
    spans: Option<Spans>,
}

impl RequestLog {
    /// A log with these settings.
    ///
    /// # Errors
    /// Why the access log cannot be written.
    pub fn new(
        settings: &RequestLogSettings,
        tenants: TenantNames,
        spans: Option<Spans>,
    ) -> Result<Self, String> {
        let access_log = AccessLog::start(settings, tenants.clone())?;
        Ok(Self { kept: settings.kept as usize, access_log, tenants, spans, ..Self::default() })
    }

    /// Makes spans of requests. `None`: requests are not traced.
    pub fn spans(&self) -> Option<&Spans> {
        self.spans.as_ref()
    }

    /// Begins the entry of a request to a loaded model. Dropped before its end, the request counts as cancelled.
    pub fn begin(&self, origin: Origin<'_>, model: &str, version: u64) -> Open<'_> {
        let entry = self.is_on().then(|| Entry { version: Some(version), ..Entry::new(origin, model) });
        Open { log: self, arrived: origin.arrived, entry }
    }

    /// Notes a request that was refused before it reached a model, unless it is in the log already.
    pub fn refused_early(&self, origin: Origin<'_>, model: &str, refusal: &Refusal) {
        if !refusal.logged && self.is_on() {
            let entry = Some(Entry::new(origin, model));
            Open { log: self, arrived: origin.arrived, entry }.failed(refusal);
        }
    }

    fn is_on(&self) -> bool {
        self.kept > 0 || self.access_log.is_some() || self.spans.is_some()
    }

    fn note(&self, entry: Entry) {
        if let Some(access_log) = &self.access_log {
            access_log.note(&entry);
        }
        if let Some(spans) = &self.spans {
            spans.note(&entry, &self.tenants.of(entry.tenant));
        }
        // Rows of jobs that were answered would push all others out.
        if self.kept == 0 || (entry.transport == Transport::Job && entry.outcome == Outcome::InTime) {
            return;
        }
        let ring = if entry.outcome == Outcome::InTime { &self.in_time } else { &self.others };
        let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest one is dropped after the lock is released.
        let _oldest = if ring.len() >= self.kept { ring.pop_front() } else { None };
        ring.push_back(entry);
        drop(ring);
    }

    /// The last request with that id.
    pub fn find(&self, id: &str) -> Option<Entry> {
        let last = |ring: &Mutex<VecDeque<Entry>>| {
            let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.iter().rev().find(|entry| *entry.id == *id).cloned()
        };
        [last(&self.others), last(&self.in_time)].into_iter().flatten().max_by_key(|entry| entry.arrived)
    }

    /// The last requests that a query asks for, newest first.
    pub fn list(&self, query: &Query) -> Vec<Entry> {
        let take = |ring: &Mutex<VecDeque<Entry>>| {
            let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.iter()
                .rev()
                .filter(|entry| query.matches(entry, &self.tenants.of(entry.tenant)))
                .take(query.limit)
                .cloned()
                .collect::<Vec<_>>()
        };
        let mut found = take(&self.others);
        found.extend(take(&self.in_time));
        found.sort_by_key(|entry| std::cmp::Reverse(entry.arrived));
        found.truncate(query.limit);
        found
    }

    /// A request without the router's decisions.
    pub fn summary(&self, entry: &Entry) -> Explanation {
        Explanation::of_entry(entry, &self.tenants.of(entry.tenant))
    }

    /// Why a request ended as it did, from its entry and the router's decisions.
    pub async fn explain(&self, entry: Entry, router: &RouterHandle) -> Explanation {
        let decisions = match entry.record {
            Some(record) => router.explain(record).await,
            None => None,
        };
        let companions = decisions.iter().flat_map(|decisions| &decisions.companions);
        let ended = entry.record.map(|record| record.ended);
        let ids = companions.filter_map(|&request| {
            let of = |entry: &&Entry| {
                entry.record.is_some_and(|record| record.request == request && Some(record.ended) == ended)
            };
            let id = |ring: &Mutex<VecDeque<Entry>>| {
                let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
                ring.iter().rev().find(of).map(|entry| entry.id.to_string())
            };
            id(&self.in_time).or_else(|| id(&self.others))
        });
        let companions = ids.collect();
        Explanation::new(&entry, &self.tenants.of(entry.tenant), decisions.as_ref(), companions)
    }
}

/// The entry of a request that has not ended.
pub struct Open<'a> {
    log: &'a RequestLog,
    arrived: Instant,
    entry: Option<Entry>,
}

impl Open<'_> {
    /// The entry, to be completed with what is known. `None` if no entries are kept.
    pub fn entry(&mut self) -> Option<&mut Entry> {
        self.entry.as_mut()
    }

    /// The request was answered.
    pub fn answered(mut self) {
        let Some(mut entry) = self.entry.take() else { return };
        entry.total = self.arrived.elapsed();
        let late = entry.objective.is_some_and(|objective| entry.total > objective);
        entry.outcome = if late { Outcome::Late } else { Outcome::InTime };
        self.log.note(entry);
    }

    /// The request ended without an answer.
    pub fn failed(mut self, refusal: &Refusal) {
        let Some(mut entry) = self.entry.take() else { return };
        entry.total = self.arrived.elapsed();
        entry.outcome = refusal.reason.outcome();
        entry.reason = Some(refusal.reason);
        entry.message = refusal.message.as_str().into();
        entry.record = refusal.record;
        self.log.note(entry);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(mut entry) = self.entry.take() {
            entry.total = self.arrived.elapsed();
            (entry.outcome, entry.reason) = (Outcome::Cancelled, Some(Reason::Cancelled));
            self.log.note(entry);
        }
    }
}

/// `http`, `grpc`, `model` or `job`.
fn word(transport: Transport) -> &'static str {
    match transport {
        Transport::Http => "http",
        Transport::Grpc => "grpc",
        Transport::Model => "model",
        Transport::Job => "job",
    }
}

#[cfg(test)]
mod tests;
