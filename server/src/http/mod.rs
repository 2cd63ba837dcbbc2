//! REST: the Open Inference Protocol v2 with its extensions, on hyper.
//!
//! Inference requests are matched first and without axum, because its matching and boxing cost more than decoding a
//! small request. All other requests go through axum.

pub mod body;
mod compression;
mod config;
mod dashboard;
mod explain;
mod forward;
mod generate;
mod health;
mod infer;
mod jobs;
mod lanes;
mod metadata;
mod partition;
mod repository;
mod response;
mod rollout;
mod route;
mod routes;
mod settings;
mod shapes;
mod shared_memory;
mod statistics;
#[cfg(test)]
mod tests;
mod what_if;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, Version};
use hyper::body::Body;
use identity::HostDenied;
use node::metrics::Transport;
use node::reason::{Reason, Refusal};
use node::tenants::RequestTenant;
use tower::ServiceExt as _;

use crate::front::Front;
use crate::gate::{Access, CertificateCaller, Surface};
use crate::service::RequestContext;
use crate::{request_id, tenant};
use response::Refused;

pub use compression::offload;
pub use repository::{add_load_parameter, check_unload_parameters, wrong_parameter};
pub use response::{HttpBody, REASON_HEADER};
pub use routes::{ROUTES, Route};

/// Answers every request of an HTTP listener; cheap to clone.
#[derive(Clone)]
pub struct HttpService {
    front: Arc<Front>,
    router: Router,
    surface: Surface,
}

impl HttpService {
    /// The inference listener.
    pub fn new(front: Arc<Front>) -> Self {
        Self::on(front, Surface::Inference)
    }

    /// The admin listener, which answers to the names that the front end has for it.
    pub fn admin(front: Arc<Front>) -> Self {
        Self::on(front, Surface::Admin)
    }

    fn on(front: Arc<Front>, surface: Surface) -> Self {
        Self { router: routes::router(Arc::clone(&front), surface), front, surface }
    }

    /// Lets an inference request in, and says whose it is.
    fn admit(&self, headers: &HeaderMap, extensions: &mut Extensions) -> Result<RequestTenant, Refusal> {
        let certificate = extensions.get::<CertificateCaller>();
        let admitted = self.front.gate.admit(Surface::Inference, Access::Inference, headers, certificate)?;
        if let Some(caller) = admitted {
            extensions.insert(caller);
        }
        Ok(tenant::of(&self.front, headers, extensions))
    }

    /// Responds to one request. Dropping the future cancels the request.
    pub async fn answer<B>(self, request: Request<B>) -> Response<HttpBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let arrived = Instant::now();
        let (mut parts, body) = request.into_parts();
        let id = self.front.ids.ensure(&mut parts.headers);
        let version = parts.version;
        let mut response = if version == Version::HTTP_11 && !has_one_host(&parts.headers) {
            let refusal =
                Refusal::new(Reason::Malformed, "header host: expected exactly one, as HTTP/1.1 requires");
            response::refused(&self.front, &refusal, &id)
        } else if let Err(denied) = self.check_host(&parts) {
            let refusal = Refusal::new(Reason::HostRefused, denied.to_string());
            response::refused(&self.front, &refusal, &id)
        } else if self.surface == Surface::Inference
            && parts.method == Method::POST
            && let Some(target) = route::infer_target(parts.uri.path())
        {
            let answered = match self.admit(&parts.headers, &mut parts.extensions) {
                Ok(tenant) => {
                    let span = self.front.span(&parts.headers);
                    let context = RequestContext {
                        span,
                        ..RequestContext::new(request_id::text(&id), arrived, Transport::Http, tenant)
                    };
                    match &self.front.peers {
                        None => infer::answer(&self.front, target, &parts.headers, body, context).await,
                        Some(peers) => {
                            let answering =
                                forward::answer(&self.front, peers, target, &parts, body, context);
                            Box::pin(answering).await
                        }
                    }
                }
                Err(refusal) => Err(refusal),
            };
            match answered {
                Ok(response) => response::with_id(response, id),
                Err(refusal) => response::refused(&self.front, &refusal, &id),
            }
        } else {
            let request = Request::from_parts(parts, axum::body::Body::new(body));
            let response = match self.router.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            response::finish(&self.front, response, id)
        };
        if version < Version::HTTP_2 && self.front.leaving() {
            // The client is to open its next connection, and send its next request, elsewhere.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl HttpService {
    /// Browsers must not reach the admin listener under the name of another site, also on loopback.
    fn check_host(&self, parts: &Parts) -> Result<(), HostDenied> {
        match self.surface {
            Surface::Inference => Ok(()),
            Surface::Admin => self.front.admin_host.check(&parts.uri, &parts.headers),
        }
    }
}

fn has_one_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    hosts.next().is_some() && hosts.next().is_none()
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
