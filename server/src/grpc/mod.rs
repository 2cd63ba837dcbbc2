//! gRPC: `inference.GRPCInferenceService` of Triton, signals of the node, health and reflection, on the same accept loop as HTTP.
//!
//! A match selects the service: there are few, and a router would box a future for each request.

mod api;
mod control;
mod forward;
mod health;
mod infer;
mod metered;
mod model_name;
mod order;
mod signals;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod timeout;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Body as HttpBody;
use node::reason::{Reason, Refusal};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::codegen::Service as _;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::{v1, v1alpha};

use crate::audit;
use crate::budget::{Held, Holding};
use crate::fleet;
use crate::fleet::proto::node_signals_server::NodeSignalsServer;
use crate::front::Front;
use crate::gate::{Access, CertificateCaller, Surface};
use api::Api;
use forward::{Replayed, Routed};
use metered::{Bounds, Metered};
use proto::grpc_inference_service_server::GrpcInferenceServiceServer;

/// The generated service; its messages are those of `oip::proto`.
#[expect(clippy::allow_attributes, clippy::allow_attributes_without_reason, reason = "generated code")]
pub mod proto {
    tonic::include_proto!("inference");
}

/// When a request arrived at its first node.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    at: Instant,
    /// How long before it came here.
    before: Duration,
}

impl Arrived {
    /// It arrives now.
    fn now() -> Self {
        Self { at: Instant::now(), before: Duration::ZERO }
    }
}

/// Answers every request of the gRPC port; cheap to clone.
pub struct GrpcService<V1, V1Alpha> {
    front: Arc<Front>,
    inference: GrpcInferenceServiceServer<Api>,
    health: HealthServer<health::Health>,
    signals: NodeSignalsServer<signals::SignalsApi>,
    reflection: v1::ServerReflectionServer<V1>,
    reflection_alpha: v1alpha::ServerReflectionServer<V1Alpha>,
}

impl<V1, V1Alpha> Clone for GrpcService<V1, V1Alpha> {
    fn clone(&self) -> Self {
        Self {
            front: Arc::clone(&self.front),
            inference: self.inference.clone(),
            health: self.health.clone(),
            signals: self.signals.clone(),
            reflection: self.reflection.clone(),
            reflection_alpha: self.reflection_alpha.clone(),
        }
    }
}

/// gRPC over a front end. Fails only if the embedded descriptors cannot be read.
pub fn service(
    front: Arc<Front>,
) -> Result<
    GrpcService<impl v1::ServerReflection, impl v1alpha::ServerReflection>,
    tonic_reflection::server::Error,
> {
    let descriptors = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(oip::proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(crate::fleet::proto::FILE_DESCRIPTOR_SET)
    };
    let message_bytes = front.limits.protocol.body_bytes;
    let inference = GrpcInferenceServiceServer::new(Api::new(Arc::clone(&front)))
        .max_decoding_message_size(message_bytes)
        .max_encoding_message_size(usize::MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
        .send_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Deflate);
    Ok(GrpcService {
        inference,
        health: HealthServer::new(health::Health::new(Arc::clone(&front))),
        signals: NodeSignalsServer::new(signals::SignalsApi::new(Arc::clone(&front))),
        reflection: descriptors().build_v1()?,
        reflection_alpha: descriptors().build_v1alpha()?,
        front,
    })
}

impl<V1: v1::ServerReflection, V1Alpha: v1alpha::ServerReflection> GrpcService<V1, V1Alpha> {
    /// Responds to one request. Dropping the future cancels the request.
    pub async fn answer<B>(mut self, mut request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let (now, peers) = (Instant::now(), self.front.peers.as_ref());
        let before = peers.map_or(Duration::ZERO, |_| fleet::elapsed(request.headers()));
        let at = now.checked_sub(before).unwrap_or(now);
        request.extensions_mut().insert(Arrived { at, before });
        let id = self.front.ids.ensure(request.headers_mut());
        let access = access(request.uri().path());
        let admitted = self.front.gate.admit(
            Surface::Inference,
            access,
            request.headers(),
            request.extensions().get::<CertificateCaller>(),
        );
        match admitted {
            Ok(caller) => {
                if access.changes() {
                    audit::change_requested(caller.as_ref(), request.uri().path());
                }
                if let Some(caller) = caller {
                    request.extensions_mut().insert(caller);
                }
            }
            Err(refusal) => {
                return status::of(&self.front, &refusal, &crate::request_id::text(&id)).into_http();
            }
        }
        let path = request.uri().path();
        let answered = if path.starts_with("/inference.GRPCInferenceService/") {
            let bidirectional = path.ends_with("/ModelStreamInfer");
            let timeout = self.front.limits.body_timeout;
            let bounds = (!bidirectional).then(|| Bounds::new(self.front.bodies.reserve(), timeout));
            let forwarding =
                peers.filter(|peers| path.ends_with("/ModelInfer") && peers.may_forward(request.headers()));
            let request = match forwarding {
                None => request.map(Replayed::new),
                Some(peers) => match Box::pin(forward::route(&self.front, peers, request)).await {
                    Ok(Routed::Here(request)) => request,
                    Ok(Routed::Answered(response)) => return response,
                    Err(refusal) => {
                        return status::of(&self.front, &refusal, &crate::request_id::text(&id)).into_http();
                    }
                },
            };
            self.inference.call(request.map(|body| Metered::new(body, bounds))).await
        } else if path.starts_with("/grpc.health.v1.Health/") {
            self.health.call(request).await
        } else if path.starts_with("/tessera.fleet.v1.NodeSignals/") {
            self.signals.call(request).await
        } else if path.starts_with("/grpc.reflection.v1.ServerReflection/") {
            self.reflection.call(request).await
        } else if path.starts_with("/grpc.reflection.v1alpha.ServerReflection/") {
            self.reflection_alpha.call(request).await
        } else {
            let refusal = Refusal::new(
                Reason::UnknownPath,
                "unknown service: inference.GRPCInferenceService, tessera.fleet.v1.NodeSignals, grpc.health.v1.Health and reflection are offered",
            );
            return status::of(&self.front, &refusal, &crate::request_id::text(&id)).into_http();
        };
        match answered {
            Ok(response) => status::complete(&self.front, holding(response), id),
            Err(never) => match never {},
        }
    }
}

/// What a method needs. A method that reads or changes settings, depending on its message, checks the role itself.
fn access(path: &str) -> Access {
    if path.starts_with("/grpc.health.v1.Health/") {
        return Access::Health;
    }
    if path.starts_with("/tessera.fleet.v1.NodeSignals/") {
        return Access::Signals;
    }
    match path.strip_prefix("/inference.GRPCInferenceService/") {
        Some("ServerLive" | "ServerReady" | "ModelReady") => Access::Health,
        Some(
            "ServerMetadata"
            | "ModelMetadata"
            | "ModelConfig"
            | "ModelStatistics"
            | "RepositoryIndex"
            | "SystemSharedMemoryStatus"
            | "CudaSharedMemoryStatus"
            | "TraceSetting"
            | "LogSettings",
        ) => Access::Metadata,
        Some("RepositoryModelLoad" | "RepositoryModelUnload") => Access::ModelControl,
        // Inference, memory for it, and methods that do not exist.
        Some(_) => Access::Inference,
        None => Access::Metadata,
    }
}

/// A large answer counts against the budget for bodies until it is taken.
fn holding(mut response: Response<Body>) -> Response<Body> {
    match response.extensions_mut().remove::<Holding>() {
        Some(holding) => response.map(|body| Body::new(Held::new(body, holding))),
        None => response,
    }
}
