//! One request of the log.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::metrics::Transport;
use crate::reason::Reason;
use crate::tenants::RequestTenant;
use router::{RecordKey, Timing};
use telemetry::{Outcome, Parent, TraceContext};

use super::Origin;

/// The part of a trace that is one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its ids.
    pub context: TraceContext,
    /// The span of the client. `None` if it named none.
    pub parent: Option<Parent>,
}

/// A stage of a pipeline that ended.
#[derive(Clone, Debug)]
pub struct StageEntry {
    /// Its name in the pipeline.
    pub name: Box<str>,
    /// The model that ran it.
    pub model: Box<str>,
    /// Version of the model.
    pub version: u64,
    /// Rows that it took.
    pub rows: u32,
    /// Requests to the model that the rows were divided into; 0 if it had no rows.
    pub parts: u32,
    /// From the arrival of the request to its start.
    pub started: Duration,
    /// From the arrival of the request to its end.
    pub ended: Duration,
    /// Times of its first part.
    pub timing: Timing,
    /// Why it failed.
    pub reason: Option<Reason>,
}

/// A request that ended.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its id: the client's `x-request-id`, or ours.
    pub id: Box<str>,
    /// When its first byte arrived.
    pub arrived: SystemTime,
    /// How it came.
    pub transport: Transport,
    /// Whose request it is.
    pub tenant: RequestTenant,
    /// The trace that it is part of. `None`: it is not traced.
    pub span: Option<Arc<Span>>,
    /// The model it named.
    pub model: Box<str>,
    /// The version that took it. `None` if none did.
    pub version: Option<u64>,
    /// Priority class, 1 the most urgent; 0 if it was not read, and for best effort.
    pub class: u32,
    /// Whether it is of best effort.
    pub best_effort: bool,
    /// Rows; 0 if they were not read.
    pub rows: u32,
    /// From arrival to deadline. `None` without one.
    pub objective: Option<Duration>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, if it was not answered.
    pub reason: Option<Reason>,
    /// What the client was told, if it was not answered.
    pub message: Box<str>,
    /// From arrival to admission by the router: reading, decoding, validation.
    pub before_queue: Duration,
    /// Time of each stage; zero if it did not run.
    pub timing: Timing,
    /// From arrival to the end.
    pub total: Duration,
    /// The router's decisions. `None` if it did not reach the router, and if it was cancelled.
    pub record: Option<RecordKey>,
    /// Its stages that ended, if it is one of a pipeline or an ensemble.
    pub pipeline: Vec<StageEntry>,
}

impl Entry {
    /// The entry of a request that is being answered.
    pub fn new(origin: Origin<'_>, model: &str) -> Self {
        Self {
            id: origin.id.into(),
            arrived: SystemTime::now() - origin.arrived.elapsed(),
            transport: origin.transport,
            tenant: origin.tenant,
            span: origin.span.cloned(),
            model: model.into(),
            version: None,
            class: 0,
            best_effort: false,
            rows: 0,
            objective: None,
            outcome: Outcome::Cancelled,
            reason: None,
            message: Box::default(),
            before_queue: Duration::ZERO,
            timing: Timing::default(),
            total: Duration::ZERO,
            record: None,
            pipeline: Vec::new(),
        }
    }
}
