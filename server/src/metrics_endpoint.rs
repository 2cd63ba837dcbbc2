//! The metrics port: `GET /metrics` in Prometheus text.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use metrics_exporter_prometheus::PrometheusHandle;
use node::reason::{Reason, Refusal};

use crate::errors;
use crate::http::REASON_HEADER;

/// Whether a request reads the metrics.
pub fn reads<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && request.uri().path() == "/metrics"
}

/// Answers one request of the metrics port.
pub fn answer<B>(handle: &PrometheusHandle, request: &Request<B>) -> Response<Full<Bytes>> {
    let (status, body) = match request.uri().path() {
        "/metrics" if reads(request) => (StatusCode::OK, Bytes::from(handle.render())),
        "/metrics" => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        _ => (StatusCode::NOT_FOUND, Bytes::from_static(b"metrics are at /metrics\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// The answer to a caller that may not read the metrics.
pub fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{}\n", refusal.message))));
    *response.status_mut() = errors::row(refusal.reason).http;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(REASON_HEADER, HeaderValue::from_static(refusal.reason.label()));
    if refusal.reason == Reason::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_get_metrics_is_answered() {
        let recorder = node::metrics::recorder().unwrap();
        let handle = recorder.handle();
        let ask = |method: Method, path: &str| {
            answer(&handle, &Request::builder().method(method).uri(path).body(()).unwrap())
        };
        assert_eq!(ask(Method::GET, "/metrics").status(), StatusCode::OK);
        assert_eq!(ask(Method::GET, "/").status(), StatusCode::NOT_FOUND);
        let refused = ask(Method::POST, "/metrics");
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(refused.headers()[ALLOW], "GET, HEAD");
    }
}
