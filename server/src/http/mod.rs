//! REST: the Open Inference Protocol v2 with its extensions, on hyper.
//!
//! Inference requests are matched first and without axum, because its matching and boxing cost more than decoding a
//! small request. All other requests go through axum.

pub mod body;
mod compression;
mod config;
mod health;
mod infer;
mod lanes;
mod metadata;
mod partition;
mod repository;
mod response;
mod route;
mod settings;
mod shared_memory;
mod statistics;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use hyper::body::Body;
use node::reason::{Reason, Refusal};
use tower::ServiceExt as _;

use crate::front::Front;
use crate::request_id;
use response::Refused;

pub use compression::offload;
pub use repository::{check_load_parameters, check_unload_parameters};
pub use response::HttpBody;

/// Answers every request of the HTTP port; cheap to clone.
#[derive(Clone)]
pub struct HttpService {
    front: Arc<Front>,
    router: Router,
}

impl HttpService {
    /// REST over a front end.
    pub fn new(front: Arc<Front>) -> Self {
        let router = router(Arc::clone(&front));
        Self { front, router }
    }

    /// Responds to one request. Dropping the future cancels the request.
    pub async fn answer<B>(self, request: Request<B>) -> Response<HttpBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let arrived = Instant::now();
        let (parts, body) = request.into_parts();
        let version = parts.version;
        let mut response = if version == Version::HTTP_11 && !has_one_host(&parts.headers) {
            let refusal =
                Refusal::new(Reason::Malformed, "header host: expected exactly one, as HTTP/1.1 requires");
            response::refused(&self.front, &refusal, parts.headers.get(request_id::HEADER))
        } else if parts.method == Method::POST
            && let Some(target) = route::infer_target(parts.uri.path())
        {
            let sent_id = parts.headers.get(request_id::HEADER);
            match infer::answer(&self.front, target, &parts.headers, body, arrived).await {
                Ok(response) => response::echo_id(response, sent_id),
                Err(refusal) => response::refused(&self.front, &refusal, sent_id),
            }
        } else {
            let sent_id = parts.headers.get(request_id::HEADER).cloned();
            let request = Request::from_parts(parts, axum::body::Body::new(body));
            let response = match self.router.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            response::finish(&self.front, response, sent_id.as_ref())
        };
        if version < Version::HTTP_2 && self.front.draining() {
            // The client is to open its next connection, and send its next request, elsewhere.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

fn has_one_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    hosts.next().is_some() && hosts.next().is_none()
}

fn router(front: Arc<Front>) -> Router {
    Router::new()
        .route("/v2", get(metadata::server))
        .route("/v2/health/live", get(health::live))
        .route("/v2/health/ready", get(health::ready))
        .route("/v2/models/stats", get(statistics::all))
        .route("/v2/models/{model}", get(metadata::model))
        .route("/v2/models/{model}/versions/{version}", get(metadata::model))
        .route("/v2/models/{model}/ready", get(health::model))
        .route("/v2/models/{model}/versions/{version}/ready", get(health::model))
        .route("/v2/models/{model}/config", get(config::model))
        .route("/v2/models/{model}/versions/{version}/config", get(config::model))
        .route("/v2/models/{model}/stats", get(statistics::model))
        .route("/v2/models/{model}/versions/{version}/stats", get(statistics::model))
        // Reached by other methods only: the right one was recognised before.
        .route("/v2/models/{model}/infer", post(unknown_path))
        .route("/v2/models/{model}/versions/{version}/infer", post(unknown_path))
        .route("/v2/models/{model}/trace/setting", get(settings::trace).post(settings::set_trace))
        .route("/v2/trace/setting", get(settings::trace).post(settings::set_trace))
        .route("/v2/logging", get(settings::logging).post(settings::set_logging))
        .route("/v2/repository/index", post(repository::index))
        .route("/v2/repository/models/{model}/load", post(repository::load))
        .route("/v2/repository/models/{model}/unload", post(repository::unload))
        .route("/v2/lanes", get(lanes::view))
        .route("/v2/lanes/{lane}/enable", post(lanes::enable))
        .route("/v2/partition", get(partition::view))
        .route("/v2/partition/plan", post(partition::plan))
        .route("/v2/partition/freeze", post(partition::freeze))
        .route("/v2/partition/thaw", post(partition::thaw))
        .route("/v2/systemsharedmemory/status", get(shared_memory::status))
        .route("/v2/systemsharedmemory/unregister", post(shared_memory::unregister_all))
        .route("/v2/systemsharedmemory/region/{region}/status", get(shared_memory::region_status))
        .route("/v2/systemsharedmemory/region/{region}/register", post(shared_memory::register))
        .route("/v2/systemsharedmemory/region/{region}/unregister", post(shared_memory::unregister))
        .route("/v2/cudasharedmemory/status", get(shared_memory::cuda_status))
        .route("/v2/cudasharedmemory/unregister", post(shared_memory::cuda_unregister))
        .route("/v2/cudasharedmemory/region/{region}/status", get(shared_memory::cuda_unsupported))
        .route("/v2/cudasharedmemory/region/{region}/register", post(shared_memory::cuda_unsupported))
        .route("/v2/cudasharedmemory/region/{region}/unregister", post(shared_memory::cuda_unregister))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(front)
}

async fn unknown_path() -> Refused {
    Refusal::new(Reason::UnknownPath, "unknown path: the protocol's paths start with /v2, try GET /v2").into()
}

async fn method_not_allowed(method: Method) -> Refused {
    Refusal::new(
        Reason::MethodNotAllowed,
        format!("method {method} is not allowed here: see the header `allow`"),
    )
    .into()
}
