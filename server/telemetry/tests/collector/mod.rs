//! A collector on a free port of 127.0.0.1, for gRPC and HTTP, with and without TLS.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};

/// How long a test waits for what must come.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// What the collector says to an export. It accepts those that nothing is planned for.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// 503, or `UNAVAILABLE`.
    Unavailable,
    /// 400, or `INVALID_ARGUMENT`.
    Invalid,
    /// Accepted but for this many spans.
    Rejects(i64),
}

/// An export that arrived, and was accepted.
#[derive(Debug)]
pub enum Export {
    Traces(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
    Logs(ExportLogsServiceRequest),
}

#[derive(Clone, Debug)]
struct Service {
    exports: mpsc::UnboundedSender<(HeaderMap, Export)>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

impl Service {
    /// Accepts an export, and says how many spans it rejects, or refuses it.
    fn take(&self, headers: HeaderMap, export: Export) -> Result<i64, (StatusCode, Code)> {
        let answer = self.answers.lock().unwrap().pop_front();
        let rejected = match answer {
            Some(Answer::Unavailable) => return Err((StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable)),
            Some(Answer::Invalid) => return Err((StatusCode::BAD_REQUEST, Code::InvalidArgument)),
            Some(Answer::Rejects(count)) => count,
            None => 0,
        };
        self.exports.send((headers, export)).unwrap();
        Ok(rejected)
    }

    fn grpc<T>(&self, request: tonic::Request<T>, export: fn(T) -> Export) -> Result<i64, Status> {
        let (metadata, _, message) = request.into_parts();
        let taken = self.take(metadata.into_headers(), export(message));
        taken.map_err(|(_, code)| Status::new(code, "as planned"))
    }
}

fn traces_response(rejected_spans: i64) -> ExportTraceServiceResponse {
    let partial = ExportTracePartialSuccess { rejected_spans, error_message: "too old".to_owned() };
    ExportTraceServiceResponse { partial_success: (rejected_spans > 0).then_some(partial) }
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        Ok(tonic::Response::new(traces_response(self.grpc(request, Export::Traces)?)))
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, Status> {
        self.grpc(request, Export::Metrics)?;
        Ok(tonic::Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Service {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, Status> {
        self.grpc(request, Export::Logs)?;
        Ok(tonic::Response::new(ExportLogsServiceResponse::default()))
    }
}

impl Service {
    async fn http(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let export = match head.uri.path() {
            "/v1/traces" => Export::Traces(Message::decode(body).unwrap()),
            "/v1/metrics" => Export::Metrics(Message::decode(body).unwrap()),
            "/v1/logs" => Export::Logs(Message::decode(body).unwrap()),
            path => panic!("unexpected path {path}"),
        };
        let (status, body) = match self.take(head.headers, export) {
            Ok(rejected) => (StatusCode::OK, traces_response(rejected).encode_to_vec()),
            Err((status, _)) => (status, Vec::new()),
        };
        let mut response = Response::new(Body::new(Full::new(Bytes::from(body))));
        *response.status_mut() = status;
        response
    }

    async fn serve(self, connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let routes = Routes::new(TraceServiceServer::new(self.clone()))
            .add_service(MetricsServiceServer::new(self.clone()))
            .add_service(LogsServiceServer::new(self.clone()))
            .prepare();
        let service = service_fn(move |request: Request<Incoming>| {
            let (service, mut routes) = (self.clone(), routes.clone());
            async move {
                let is_grpc =
                    request.headers().get("content-type").is_some_and(|found| found == "application/grpc");
                if is_grpc {
                    return tonic::codegen::Service::call(&mut routes, request)
                        .await
                        .map(|found| found.map(Body::new));
                }
                Ok(service.http(request).await)
            }
        });
        // A connection ends with an error if the client is dropped first.
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(connection), service)
            .await;
    }
}

/// A collector that runs until the runtime ends.
pub struct Collector {
    pub address: SocketAddr,
    exports: mpsc::UnboundedReceiver<(HeaderMap, Export)>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

impl Collector {
    pub async fn start(tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, exports) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let service = Service { exports: sender, answers: Arc::clone(&answers) };
        tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                connection.set_nodelay(true).unwrap();
                let (service, tls) = (service.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            // A client that does not trust the certificate leaves.
                            if let Ok(connection) = tls.accept(connection).await {
                                service.serve(connection).await;
                            }
                        }
                        None => service.serve(connection).await,
                    }
                });
            }
        });
        Self { address, exports, answers }
    }

    /// Plans the answers to the next exports.
    pub fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        self.answers.lock().unwrap().extend(answers);
    }

    /// The next export.
    pub async fn next(&mut self) -> (HeaderMap, Export) {
        tokio::time::timeout(TIMEOUT, self.exports.recv()).await.unwrap().unwrap()
    }

    /// The spans of the next export, which has to be one of traces.
    pub async fn spans(&mut self) -> Vec<Span> {
        let (_, Export::Traces(mut traces)) = self.next().await else { panic!("expected traces") };
        std::mem::take(&mut traces.resource_spans[0].scope_spans[0].spans)
    }

    /// Whether all exports that arrived were taken by the test.
    pub fn is_empty(&mut self) -> bool {
        self.exports.try_recv().is_err()
    }
}
