//! Spans of a request that ended: `infer`, and in it `queue` and `execute`, or `stage` for each stage of a pipeline.

use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags, Status};

use crate::attribute::{bounded, float, integer, text};
use crate::context::TraceContext;
use crate::ids::{DerivedIds, IdSource, SpanId, TraceId};
use crate::request::{Outcome, PipelineStage, Request, Transport};
use crate::sampling::Cause;
use crate::unix_time::unix_nanos;

/// Spans that [`of_request`] makes of this request.
pub(crate) fn count(request: &Request) -> u64 {
    if !request.pipeline.is_empty() {
        return 1 + request.pipeline.len() as u64;
    }
    1 + u64::from(!request.stages.queued.is_zero()) + u64::from(!request.stages.executed.is_zero())
}

/// The spans of a request, the span `infer` first.
pub(crate) fn of_request(request: &Request, cause: Cause, ids: &IdSource, batches: DerivedIds) -> Vec<Span> {
    let stages = request.stages;
    let mut spans = vec![infer(request, cause)];
    if !request.pipeline.is_empty() {
        spans.extend(request.pipeline.iter().map(|own| stage(request, own, ids, batches)));
        return spans;
    }
    let queue_starts = after(request.arrived, stages.before_queue);
    if !stages.queued.is_zero() {
        let mut span = child("queue", &request.context, ids, queue_starts, stages.queued);
        span.attributes.push(integer("tessera.class", request.class));
        spans.push(span);
    }
    if !stages.executed.is_zero() {
        let starts = after(queue_starts, stages.queued.saturating_add(stages.batch_wait));
        let mut span = child("execute", &request.context, ids, starts, stages.executed);
        if let Some(batch) = request.batch {
            span.attributes.push(integer("tessera.batch.id", batch.id.0));
            span.attributes.push(integer("tessera.batch.rows", batch.rows));
            span.attributes.push(integer("tessera.lane", batch.lane));
            let (trace_id, span_id) = batches.of(batch.id.0);
            span.links.push(link(trace_id, span_id, ""));
        }
        if request.outcome == Outcome::Failed {
            span.status = status(request);
        }
        spans.push(span);
    }
    spans
}

/// A stage of a pipeline. It has no spans in it: its times are attributes.
fn stage(request: &Request, own: &PipelineStage, ids: &IdSource, batches: DerivedIds) -> Span {
    let starts = after(request.arrived, own.started);
    let mut span = child("stage", &request.context, ids, starts, own.ended.saturating_sub(own.started));
    span.attributes.push(text("tessera.stage", &own.name));
    span.attributes.push(text("tessera.model", &own.model));
    span.attributes.push(integer("tessera.model.version", own.version));
    span.attributes.push(integer("tessera.rows", own.rows));
    span.attributes.push(float("tessera.queued_seconds", own.queued.as_secs_f64()));
    span.attributes.push(float("tessera.executed_seconds", own.executed.as_secs_f64()));
    if let Some(batch) = own.batch {
        span.attributes.push(integer("tessera.batch.id", batch.0));
        let (trace_id, span_id) = batches.of(batch.0);
        span.links.push(link(trace_id, span_id, ""));
    }
    if let Some(reason) = own.reason {
        span.attributes.push(text("error.type", reason));
        span.status = Some(Status { message: reason.to_owned(), code: StatusCode::Error.into() });
    }
    span
}

fn infer(request: &Request, cause: Cause) -> Span {
    let mut attributes = match request.transport {
        Transport::Http => vec![text("http.request.method", "POST"), text("network.protocol.name", "http")],
        Transport::Grpc => vec![text("rpc.system", "grpc")],
        Transport::Model => Vec::new(),
    };
    attributes.push(text("tessera.request.id", &request.id));
    attributes.push(text("tessera.model", &request.model));
    attributes.extend(request.version.map(|version| integer("tessera.model.version", version)));
    attributes.push(text("tessera.tenant", &request.tenant));
    attributes.push(integer("tessera.class", request.class));
    attributes.push(integer("tessera.rows", request.rows));
    attributes.push(text("tessera.outcome", request.outcome.name()));
    attributes.extend(request.reason.map(|reason| text("tessera.reason", reason)));
    if let Some(objective) = request.objective {
        attributes.push(float("tessera.objective_seconds", objective.as_secs_f64()));
    }
    attributes.push(text("tessera.sampled_by", cause.name()));
    let status = status(request);
    if status.is_some() {
        attributes.push(text("error.type", request.reason.unwrap_or("_OTHER")));
    }
    let parent = request.parent.map(|parent| parent.span_id.to_bytes().to_vec()).unwrap_or_default();
    let is_remote = if parent.is_empty() { 0 } else { SpanFlags::ContextIsRemoteMask as u32 };
    Span {
        span_id: request.context.span_id.to_bytes().to_vec(),
        parent_span_id: parent,
        kind: SpanKind::Server.into(),
        flags: flags() | is_remote,
        attributes,
        status,
        ..span("infer", &request.context, request.arrived, request.stages.total)
    }
}

/// A failed or refused request is an error; one that is late, or that the client left, is not.
fn status(request: &Request) -> Option<Status> {
    let is_error = matches!(request.outcome, Outcome::Failed | Outcome::Refused);
    is_error.then(|| {
        let message = if request.message.is_empty() {
            request.reason.unwrap_or_default()
        } else {
            bounded(&request.message)
        };
        Status { message: message.to_owned(), code: StatusCode::Error.into() }
    })
}

fn child(name: &str, parent: &TraceContext, ids: &IdSource, starts: SystemTime, lasts: Duration) -> Span {
    Span {
        span_id: ids.span_id().to_bytes().to_vec(),
        parent_span_id: parent.span_id.to_bytes().to_vec(),
        kind: SpanKind::Internal.into(),
        ..span(name, parent, starts, lasts)
    }
}

fn span(name: &str, context: &TraceContext, starts: SystemTime, lasts: Duration) -> Span {
    Span {
        trace_id: context.trace_id.to_bytes().to_vec(),
        trace_state: context.state.as_str().to_owned(),
        flags: flags(),
        name: name.to_owned(),
        start_time_unix_nano: unix_nanos(starts),
        end_time_unix_nano: unix_nanos(after(starts, lasts)),
        ..Span::default()
    }
}

/// The span `batch`, in a trace of its own.
pub(crate) fn of_batch(
    (trace_id, span_id): (TraceId, SpanId),
    (started, ended): (SystemTime, SystemTime),
    attributes: Vec<KeyValue>,
    links: Vec<Link>,
    dropped_links: u32,
) -> Span {
    Span {
        trace_id: trace_id.to_bytes().to_vec(),
        span_id: span_id.to_bytes().to_vec(),
        flags: flags(),
        name: "batch".to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: unix_nanos(started),
        end_time_unix_nano: unix_nanos(ended.max(started)),
        attributes,
        links,
        dropped_links_count: dropped_links,
        ..Span::default()
    }
}

/// A reference to a span of another trace.
pub(crate) fn link(trace_id: TraceId, span_id: SpanId, state: &str) -> Link {
    Link {
        trace_id: trace_id.to_bytes().to_vec(),
        span_id: span_id.to_bytes().to_vec(),
        trace_state: state.to_owned(),
        flags: flags(),
        ..Link::default()
    }
}

/// Every exported span is sampled, and says whether its parent is remote.
fn flags() -> u32 {
    SpanFlags::ContextHasIsRemoteMask as u32 | 1
}

fn after(time: SystemTime, lasts: Duration) -> SystemTime {
    time.checked_add(lasts).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn key<'a>(span: &'a Span, name: &str) -> Option<&'a KeyValue> {
        span.attributes.iter().find(|attribute| attribute.key == name)
    }

    #[test]
    fn an_answered_request_has_three_spans_in_order_of_time() {
        let ids = IdSource::new([1, 2]);
        let request = example::request(&ids);
        let batches = DerivedIds::new(&ids);
        let spans = of_request(&request, Cause::Ratio, &ids, batches);
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["infer", "queue", "execute"]);
        assert_eq!(count(&request), 3);
        let [infer, queue, execute] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(infer.kind, SpanKind::Server as i32);
        assert!(infer.parent_span_id.is_empty() && infer.status.is_none());
        for span in [queue, execute] {
            assert_eq!((&span.parent_span_id, &span.trace_id), (&infer.span_id, &infer.trace_id));
        }
        let millis = |span: &Span| {
            let start = infer.start_time_unix_nano;
            ((span.start_time_unix_nano - start) / 1_000_000, (span.end_time_unix_nano - start) / 1_000_000)
        };
        assert_eq!([millis(infer), millis(queue), millis(execute)], [(0, 20), (1, 6), (8, 18)]);
        assert_eq!(execute.links[0].trace_id, batches.of(7).0.to_bytes());
        assert!(key(infer, "tessera.model").is_some() && key(infer, "error.type").is_none());
    }

    #[test]
    fn a_request_of_a_pipeline_has_a_span_for_each_stage() {
        let ids = IdSource::new([1, 2]);
        let request = example::pipeline(&ids);
        let batches = DerivedIds::new(&ids);
        let spans = of_request(&request, Cause::Failed, &ids, batches);
        assert_eq!((spans.len(), count(&request)), (3, 3));
        let [infer, det, rec] = &spans[..] else { panic!("{spans:?}") };
        for (span, name) in [(det, "det"), (rec, "rec")] {
            assert_eq!((span.name.as_str(), &span.parent_span_id), ("stage", &infer.span_id));
            assert_eq!(key(span, "tessera.stage"), Some(&text("tessera.stage", name)));
        }
        let millis = |span: &Span| {
            let start = infer.start_time_unix_nano;
            ((span.start_time_unix_nano - start) / 1_000_000, (span.end_time_unix_nano - start) / 1_000_000)
        };
        assert_eq!([millis(det), millis(rec)], [(1, 8), (8, 18)]);
        assert_eq!(det.links[0].trace_id, batches.of(1).0.to_bytes());
        assert!(det.status.is_none());
        assert_eq!(key(rec, "error.type"), Some(&text("error.type", "engine_failed")));
    }

    #[test]
    fn a_refused_request_has_one_span_with_the_reason() {
        let ids = IdSource::new([1, 2]);
        let request = example::refused(&ids);
        let spans = of_request(&request, Cause::Refused, &ids, DerivedIds::new(&ids));
        assert_eq!((spans.len(), count(&request)), (1, 1));
        let status = spans[0].status.clone().unwrap();
        assert_eq!((status.code, status.message.as_str()), (StatusCode::Error as i32, "the queue is full"));
        assert_eq!(key(&spans[0], "error.type"), Some(&text("error.type", "queue_full")));
    }

    #[test]
    fn the_span_of_the_client_is_the_parent() {
        let ids = IdSource::new([1, 2]);
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (context, parent) = TraceContext::of_request(Some(header), Some("a=1"), &ids);
        let request = Request { context, parent, ..example::request(&ids) };
        let spans = of_request(&request, Cause::Parent, &ids, DerivedIds::new(&ids));
        assert_eq!(spans[0].parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        assert_eq!(spans[0].flags, 0x301);
        assert_eq!(spans[1].flags, 0x101);
        assert!(spans.iter().all(|span| span.trace_state == "a=1"));
    }
}
