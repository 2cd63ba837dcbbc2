//! Export to a collector: what arrives, what is tried again, and what happens without a collector.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod collector;

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use collector::{Answer, Collector, Export, TIMEOUT};
use opentelemetry_proto::tonic::trace::v1::Span;
use rustls::pki_types::PrivateKeyDer;
use telemetry::{
    Batch, BatchId, Dropped, Exporter, Headers, IdSource, LogLevel, Outcome, Protocol, Request, Resource,
    Settings, SignalName, Sources, Stages, TraceContext, Transport, log_layer,
};
use tracing_subscriber::layer::SubscriberExt as _;

const BOTH: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

/// Settings that keep every request, and export only if asked to.
fn settings(endpoint: String, protocol: Protocol) -> Settings {
    let one = NonZeroU32::MIN;
    Settings {
        endpoint,
        protocol,
        sample: one,
        limit: one.saturating_add(1_000_000),
        delay: Duration::from_secs(3600),
        period: Duration::from_secs(3600),
        headers: Headers([("authorization".to_owned(), "Bearer word".to_owned())].into()),
        ..Settings::default()
    }
}

fn resource() -> Resource {
    Resource {
        service: "tessera".to_owned(),
        version: "1.2.3".to_owned(),
        instance: "a".to_owned(),
        attributes: vec![("host.name".to_owned(), "h".to_owned())],
    }
}

fn ids() -> Arc<IdSource> {
    Arc::new(IdSource::new([1, 2]))
}

fn request(context: TraceContext) -> Request {
    let millis = Duration::from_millis;
    let arrived = SystemTime::now();
    Request {
        context,
        parent: None,
        id: "r-1".into(),
        model: "resnet".into(),
        version: Some(3),
        tenant: "default".into(),
        class: 1,
        rows: 2,
        transport: Transport::Grpc,
        outcome: Outcome::InTime,
        reason: None,
        message: Box::default(),
        arrived,
        stages: Stages {
            before_queue: millis(1),
            queued: millis(5),
            batch_wait: millis(2),
            executed: millis(10),
            total: millis(20),
        },
        objective: Some(millis(50)),
        batch: Some(Batch {
            id: BatchId(7),
            lane: 4,
            rows: 8,
            started: arrived + millis(8),
            ended: arrived + millis(18),
        }),
        pipeline: Vec::new(),
    }
}

fn record(exporter: &Exporter, request: &Request) {
    exporter.record(&request.ended(), || request.clone());
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

async fn exporter(collector: &Collector, protocol: Protocol) -> (Exporter, Arc<IdSource>) {
    let ids = ids();
    let settings = settings(format!("http://{}", collector.address), protocol);
    (Exporter::start(&settings, &resource(), Sources::new(Arc::clone(&ids))).unwrap(), ids)
}

#[tokio::test]
async fn all_three_signals_arrive() {
    for protocol in BOTH {
        let mut collector = Collector::start(None).await;
        let (layer, logs) = log_layer(LogLevel::Info, NonZeroUsize::MIN);
        let sources = Sources {
            metrics: Some(Arc::new(|| "# TYPE a_total counter\na_total 3\n".to_owned())),
            logs: Some(logs),
            ..Sources::new(ids())
        };
        let settings = settings(format!("http://{}", collector.address), protocol);
        let exporter = Exporter::start(&settings, &resource(), sources).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || tracing::warn!(target: "node", "lane failed"));
        record(&exporter, &request(TraceContext::new(&ids())));
        assert!(exporter.flush(TIMEOUT).await);
        let mut arrived = [0; 3];
        for _ in 0..3 {
            let (headers, export) = collector.next().await;
            assert_eq!(headers["authorization"], "Bearer word");
            assert!(headers["user-agent"].to_str().unwrap().starts_with("OTel-OTLP-Exporter-Tessera/"));
            let (signal, resource) = match export {
                Export::Traces(export) => {
                    assert_eq!(export.resource_spans[0].scope_spans[0].spans.len(), 4);
                    (0, export.resource_spans[0].resource.clone().unwrap())
                }
                Export::Metrics(export) => {
                    assert_eq!(export.resource_metrics[0].scope_metrics[0].metrics[0].name, "a_total");
                    (1, export.resource_metrics[0].resource.clone().unwrap())
                }
                Export::Logs(export) => {
                    let scope = &export.resource_logs[0].scope_logs[0];
                    assert_eq!(scope.scope.as_ref().unwrap().name, "node");
                    assert_eq!(scope.log_records[0].severity_text, "WARN");
                    (2, export.resource_logs[0].resource.clone().unwrap())
                }
            };
            let keys: Vec<&str> =
                resource.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
            assert_eq!(keys, ["service.name", "service.version", "service.instance.id", "host.name"]);
            arrived[signal] += 1;
        }
        assert_eq!(arrived, [1, 1, 1]);
        let exported = SignalName::ALL.map(|name| exporter.statistics().signal(name).exported());
        assert_eq!(exported, [4, 1, 1]);
    }
}

#[tokio::test]
async fn spans_have_the_right_ids_and_parents() {
    let mut collector = Collector::start(None).await;
    let (exporter, ids) = exporter(&collector, Protocol::Grpc).await;
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let (context, parent) = TraceContext::of_request(Some(header), Some("a=1"), &ids);
    let first = Request { parent, ..request(context) };
    let second = request(TraceContext::new(&ids));
    record(&exporter, &first);
    record(&exporter, &second);
    assert!(exporter.flush(TIMEOUT).await);
    let spans = collector.spans().await;
    let infer = named(&spans, "infer");
    assert_eq!(infer[0].parent_span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
    assert_eq!(infer[0].trace_id, first.context.trace_id.to_bytes());
    assert!(infer[1].parent_span_id.is_empty());
    for name in ["queue", "execute"] {
        for (child, infer) in named(&spans, name).into_iter().zip(&infer) {
            assert_eq!((&child.parent_span_id, &child.trace_id), (&infer.span_id, &infer.trace_id));
        }
    }
    let batch = named(&spans, "batch");
    assert_eq!(batch.len(), 1);
    let linked: Vec<_> = batch[0].links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
    let expected: Vec<_> = infer.iter().map(|span| (&span.trace_id, &span.span_id)).collect();
    assert_eq!(linked, expected);
    for execute in named(&spans, "execute") {
        assert_eq!(
            (&execute.links[0].trace_id, &execute.links[0].span_id),
            (&batch[0].trace_id, &batch[0].span_id)
        );
    }
}

#[tokio::test]
async fn an_unavailable_collector_is_tried_again_and_gets_everything_once() {
    for protocol in BOTH {
        let mut collector = Collector::start(None).await;
        collector.answer([Answer::Unavailable]);
        let (exporter, ids) = exporter(&collector, protocol).await;
        record(&exporter, &request(TraceContext::new(&ids)));
        assert!(exporter.flush(TIMEOUT).await);
        assert_eq!(collector.spans().await.len(), 4);
        assert!(collector.is_empty());
        let traces = exporter.statistics().signal(SignalName::Traces);
        assert_eq!((traces.exported(), traces.dropped_in_total()), (4, 0));
        assert!(traces.last_error().is_some());
    }
}

#[tokio::test]
async fn what_the_collector_refuses_is_not_tried_again() {
    for protocol in BOTH {
        let mut collector = Collector::start(None).await;
        collector.answer([Answer::Invalid, Answer::Rejects(3)]);
        let (exporter, ids) = exporter(&collector, protocol).await;
        let traces = exporter.statistics().signal(SignalName::Traces);
        record(&exporter, &request(TraceContext::new(&ids)));
        assert!(exporter.flush(TIMEOUT).await);
        assert!(collector.is_empty());
        assert_eq!((traces.exported(), traces.dropped_for(Dropped::Refused)), (0, 4));
        record(&exporter, &request(TraceContext::new(&ids)));
        assert!(exporter.flush(TIMEOUT).await);
        assert_eq!((traces.exported(), traces.dropped_for(Dropped::Refused)), (1, 7));
        assert_eq!(traces.last_error().as_deref(), Some("too old"));
    }
}

/// Fills the queue of 10 requests twice without giving the exporter a chance to run.
fn overfill(exporter: &Exporter, ids: &IdSource) {
    for _ in 0..20 {
        record(exporter, &request(TraceContext::new(ids)));
    }
    let traces = exporter.statistics().signal(SignalName::Traces);
    assert_eq!(traces.dropped_for(Dropped::QueueFull), 30, "10 requests of 3 spans");
}

#[tokio::test]
async fn without_a_collector_spans_are_dropped_and_counted() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    for protocol in BOTH {
        let ids = ids();
        let queue = NonZeroUsize::new(10).unwrap();
        let settings = Settings {
            queue,
            timeout: Duration::from_millis(100),
            retry_for: Duration::from_secs(2),
            ..settings(format!("http://{address}"), protocol)
        };
        let exporter = Exporter::start(&settings, &resource(), Sources::new(Arc::clone(&ids))).unwrap();
        overfill(&exporter, &ids);
        assert!(
            !exporter.flush(Duration::from_millis(10)).await,
            "a stop does not wait longer than it wants to"
        );
        assert!(exporter.flush(TIMEOUT).await);
        let traces = exporter.statistics().signal(SignalName::Traces);
        assert_eq!((traces.exported(), traces.dropped_for(Dropped::SendFailed)), (0, 31));
        assert!(traces.last_error().is_some());
    }
}

#[tokio::test]
async fn a_collector_that_never_answers_costs_nothing_but_spans() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok(connection) = silent.accept().await {
            open.push(connection);
        }
    });
    for protocol in BOTH {
        let ids = ids();
        let queue = NonZeroUsize::new(10).unwrap();
        let settings = Settings {
            queue,
            timeout: Duration::from_millis(100),
            retry_for: Duration::from_secs(2),
            ..settings(format!("http://{address}"), protocol)
        };
        let exporter = Exporter::start(&settings, &resource(), Sources::new(Arc::clone(&ids))).unwrap();
        overfill(&exporter, &ids);
        assert!(exporter.flush(TIMEOUT).await);
        let traces = exporter.statistics().signal(SignalName::Traces);
        assert_eq!((traces.exported(), traces.dropped_for(Dropped::SendFailed)), (0, 31));
        assert!(traces.last_error().unwrap().contains("no answer within"));
    }
}

#[tokio::test]
async fn more_than_one_message_is_flushed() {
    let mut collector = Collector::start(None).await;
    let (exporter, ids) = exporter(&collector, Protocol::Grpc).await;
    for _ in 0..1000 {
        record(&exporter, &request(TraceContext::new(&ids)));
    }
    assert!(exporter.flush(TIMEOUT).await);
    let mut spans = Vec::new();
    while spans.len() < 3001 {
        spans.extend(collector.spans().await);
    }
    assert_eq!((named(&spans, "infer").len(), named(&spans, "batch").len()), (1000, 1));
    assert_eq!(exporter.statistics().signal(SignalName::Traces).exported(), 3001);
    assert!(exporter.flush(TIMEOUT).await && collector.is_empty());
}

#[tokio::test]
async fn threads_share_an_exporter() {
    let mut collector = Collector::start(None).await;
    let (exporter, ids) = exporter(&collector, Protocol::Http).await;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| record(&exporter, &request(TraceContext::new(&ids)))));
        }
    });
    assert!(exporter.flush(TIMEOUT).await);
    let spans = collector.spans().await;
    let distinct: std::collections::HashSet<_> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!((spans.len(), distinct.len()), (601, 601));
}

#[tokio::test]
async fn the_certificate_of_the_collector_is_checked() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut collector = Collector::start(Some(Arc::new(server).into())).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    let port = collector.address.port();
    for protocol in BOTH {
        let ids = ids();
        let start = |host: &str| {
            let sources = Sources { tls: Some(Arc::clone(&client)), ..Sources::new(Arc::clone(&ids)) };
            Exporter::start(&settings(format!("https://{host}:{port}"), protocol), &resource(), sources)
                .unwrap()
        };
        let exporter = start("localhost");
        record(&exporter, &request(TraceContext::new(&ids)));
        assert!(exporter.flush(TIMEOUT).await);
        assert_eq!(collector.spans().await.len(), 4);
        let other = start("127.0.0.1");
        record(&other, &request(TraceContext::new(&ids)));
        other.flush(Duration::ZERO).await;
        let error = async {
            loop {
                if let Some(error) = other.statistics().signal(SignalName::Traces).last_error() {
                    return error;
                }
                tokio::task::yield_now().await;
            }
        };
        let error = tokio::time::timeout(TIMEOUT, error).await.unwrap();
        assert!(error.contains("certificate"), "{error}");
    }
}

#[tokio::test]
#[ignore = "needs a collector: set OTLP_ENDPOINT, and OTLP_PROTOCOL to `http` unless it speaks gRPC"]
async fn a_collector_of_others_accepts_spans() {
    let protocol = match std::env::var("OTLP_PROTOCOL").as_deref() {
        Ok("http") => Protocol::Http,
        _ => Protocol::Grpc,
    };
    let ids = Arc::new(IdSource::seeded().unwrap());
    let settings = settings(std::env::var("OTLP_ENDPOINT").unwrap(), protocol);
    let exporter = Exporter::start(&settings, &resource(), Sources::new(Arc::clone(&ids))).unwrap();
    let answered = request(TraceContext::new(&ids));
    let message = "the queue is full".into();
    let refused =
        Request { outcome: Outcome::Refused, reason: Some("queue_full"), message, ..answered.clone() };
    let refused =
        Request { context: TraceContext::new(&ids), stages: Stages::default(), batch: None, ..refused };
    for request in [answered, refused] {
        record(&exporter, &request);
        println!("{}: {}", request.outcome.name(), request.context.trace_parent());
    }
    assert!(exporter.flush(TIMEOUT).await);
    let traces = exporter.statistics().signal(SignalName::Traces);
    assert_eq!((traces.exported(), traces.dropped_in_total()), (5, 0), "{:?}", traces.last_error());
}

#[tokio::test]
#[ignore = "prints figures: run it with `--release -- --ignored --nocapture`"]
async fn cost_of_a_request() {
    let collector = Collector::start(None).await;
    let ids = ids();
    let most = NonZeroU32::MAX;
    let base = settings(format!("http://{}", collector.address), Protocol::Grpc);
    for (what, sample, count) in [("not sampled", most, 1_000_000u32), ("sampled", NonZeroU32::MIN, 100_000)]
    {
        let queue = NonZeroUsize::new(1 << 20).unwrap();
        let settings = Settings { sample, queue, limit: most, ..base.clone() };
        let exporter = Exporter::start(&settings, &resource(), Sources::new(Arc::clone(&ids))).unwrap();
        let requests: Vec<Request> = (0..1000).map(|_| request(TraceContext::new(&ids))).collect();
        let start = Instant::now();
        for request in requests.iter().cycle().take(count as usize) {
            record(&exporter, request);
        }
        let offered = start.elapsed() / count;
        let start = Instant::now();
        assert!(exporter.flush(TIMEOUT).await);
        println!("{what}: {offered:?} to offer it, {:?} to export and receive it", start.elapsed() / count);
    }
}
