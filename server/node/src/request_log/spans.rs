//! Spans of requests for OpenTelemetry, from entries that ended.

use std::sync::Arc;
use std::time::SystemTime;

use telemetry::{
    Batch, BatchId, Ended, Exporter, IdSource, PipelineStage, Request, Stages, TraceContext,
    Transport as Sent,
};

use super::entry::{Entry, Span, StageEntry};
use crate::metrics::Transport;

/// Makes spans, and offers requests that ended to the exporter.
#[derive(Clone, Debug)]
pub struct Spans {
    /// Source of ids, the exporter's.
    pub ids: Arc<IdSource>,
    /// Where spans go.
    pub exporter: Arc<Exporter>,
}

impl Spans {
    /// The span of a request with these headers.
    pub fn of(&self, trace_parent: Option<&str>, trace_state: Option<&str>) -> Arc<Span> {
        let (context, parent) = TraceContext::of_request(trace_parent, trace_state, &self.ids);
        Arc::new(Span { context, parent })
    }

    /// Offers a request that ended. Never waits.
    pub(super) fn note(&self, entry: &Entry, tenant: &str) {
        let Some(span) = &entry.span else { return };
        let ended = Ended {
            model: &entry.model,
            outcome: entry.outcome,
            total: entry.total,
            trace_id: span.context.trace_id,
            parent: span.parent,
        };
        self.exporter.record(&ended, || Request {
            context: span.context.clone(),
            parent: span.parent,
            id: entry.id.clone(),
            model: entry.model.clone(),
            version: entry.version,
            tenant: tenant.into(),
            class: entry.class,
            rows: entry.rows,
            transport: match entry.transport {
                Transport::Http => Sent::Http,
                Transport::Grpc => Sent::Grpc,
                // Neither came over the network.
                Transport::Model | Transport::Job => Sent::Model,
            },
            outcome: entry.outcome,
            reason: entry.reason.map(|reason| reason.label()),
            message: entry.message.clone(),
            arrived: entry.arrived,
            stages: Stages {
                before_queue: entry.before_queue,
                queued: entry.timing.queue,
                batch_wait: entry.timing.batch_wait,
                executed: entry.timing.compute,
                total: entry.total,
            },
            objective: entry.objective,
            batch: batch(entry),
            pipeline: entry.pipeline.iter().map(stage).collect(),
        });
    }
}

/// A stage of a pipeline.
fn stage(entry: &StageEntry) -> PipelineStage {
    let timing = &entry.timing;
    PipelineStage {
        name: entry.name.clone(),
        model: entry.model.clone(),
        version: entry.version,
        rows: entry.rows,
        started: entry.started,
        queued: timing.queue,
        executed: timing.compute,
        ended: entry.ended,
        batch: timing.batch.map(|batch| BatchId(batch.0)),
        reason: entry.reason.map(|reason| reason.label()),
    }
}

/// The batch of a request that ran.
fn batch(entry: &Entry) -> Option<Batch> {
    let timing = &entry.timing;
    let id = BatchId(timing.batch?.0);
    let started: SystemTime = entry.arrived + entry.before_queue + timing.queue + timing.batch_wait;
    Some(Batch { id, lane: timing.lane, rows: timing.batch_rows, started, ended: started + timing.compute })
}
