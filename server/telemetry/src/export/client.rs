//! The connection to the collector, over gRPC or HTTP.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Method, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use tonic::body::Body;
use tonic::client::Grpc;

use super::codec::Encoded;
use super::failure::{Failure, innermost};
use crate::settings::{Protocol, Settings};
use crate::signal::SignalName;

/// Longest response that is read, in bytes. Responses of collectors are a few bytes long.
const RESPONSE_MAX: usize = 64 * 1024;
const AGENT: &str = concat!("OTel-OTLP-Exporter-Tessera/", env!("CARGO_PKG_VERSION"));

/// What is wrong with the settings of the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The URL is not one of a collector.
    #[error("expected a URL such as `http://localhost:4317`, got `{0}`")]
    Url(String),
    /// The URL is `https`, and the caller passed no TLS.
    #[error("expected certificates of authorities for `{0}`, got none")]
    Tls(String),
    /// A header is not one of HTTP, or sets what OTLP sets. Its value may be a secret, so that only the name is shown.
    #[error("expected a header of HTTP, got one named `{0}`")]
    Header(String),
    /// TLS is not available.
    #[error("{0}")]
    Provider(String),
}

type Connection = legacy::Client<HttpsConnector<HttpConnector>, Body>;

/// Checks the settings of the connection without making one.
///
/// # Errors
/// Says which setting is wrong.
pub fn check_connection(settings: &Settings) -> Result<(), InvalidEndpoint> {
    endpoint(&settings.endpoint)?;
    headers(settings).map(drop)
}

/// Sends encoded messages to the collector.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    connection: Connection,
    connector: HttpsConnector<HttpConnector>,
    protocol: Protocol,
    endpoint: Uri,
    headers: HeaderMap,
    timeout: Duration,
}

impl Client {
    pub(crate) fn new(settings: &Settings, tls: Option<&ClientConfig>) -> Result<Self, InvalidEndpoint> {
        let endpoint = endpoint(&settings.endpoint)?;
        let mut tls = match tls {
            Some(tls) => tls.clone(),
            None if endpoint.scheme_str() == Some("https") => {
                return Err(InvalidEndpoint::Tls(settings.endpoint.clone()));
            }
            None => without_authorities()?,
        };
        // The connector sets the protocols.
        tls.alpn_protocols.clear();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = match settings.protocol {
            Protocol::Grpc => builder.enable_http2().wrap_connector(tcp),
            Protocol::Http => builder.enable_http1().wrap_connector(tcp),
        };
        Ok(Self {
            connection: connection(&connector, settings.protocol),
            connector,
            protocol: settings.protocol,
            endpoint,
            headers: headers(settings)?,
            timeout: settings.timeout,
        })
    }

    /// Sends a message once, and returns the response.
    pub(super) async fn send(&mut self, signal: SignalName, message: Bytes) -> Result<Bytes, Failure> {
        let attempt = async {
            match self.protocol {
                Protocol::Grpc => self.send_grpc(signal, message).await,
                Protocol::Http => self.send_http(signal, message).await,
            }
        };
        if let Ok(response) = tokio::time::timeout(self.timeout, attempt).await {
            return response;
        }
        // A connection whose other end has disappeared would make all later attempts wait, too.
        self.connection = connection(&self.connector, self.protocol);
        Err(Failure::transport(format!("no answer within {:?}", self.timeout)))
    }

    async fn send_grpc(&self, signal: SignalName, message: Bytes) -> Result<Bytes, Failure> {
        let mut grpc = Grpc::with_origin(self.connection.clone(), self.endpoint.clone())
            .max_decoding_message_size(RESPONSE_MAX);
        grpc.ready().await.map_err(|error| Failure::transport(innermost(&error)))?;
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(self.headers.clone());
        let path = PathAndQuery::from_static(signal.grpc_path());
        let response = grpc.unary(request, path, Encoded).await.map_err(|status| Failure::grpc(&status))?;
        Ok(response.into_inner())
    }

    async fn send_http(&self, signal: SignalName, message: Bytes) -> Result<Bytes, Failure> {
        let url = format!("{}{}", self.endpoint.to_string().trim_end_matches('/'), signal.http_path());
        let mut request = http::Request::new(Body::new(Full::new(message)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_str(&url).map_err(|error| Failure::transport(error.to_string()))?;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let response = self.connection.request(request).await;
        let response = response.map_err(|error| Failure::transport(innermost(&error)))?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Err(Failure::http(head.status, &head.headers, SystemTime::now()));
        }
        let body = Limited::new(body, RESPONSE_MAX).collect().await;
        Ok(body.map_err(|error| Failure::transport(innermost(&*error)))?.to_bytes())
    }
}

fn connection(connector: &HttpsConnector<HttpConnector>, protocol: Protocol) -> Connection {
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .http2_only(protocol == Protocol::Grpc)
        .build(connector.clone())
}

fn endpoint(text: &str) -> Result<Uri, InvalidEndpoint> {
    let invalid = || InvalidEndpoint::Url(text.to_owned());
    let uri = Uri::from_str(text).map_err(|_| invalid())?;
    let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_plain = uri.query().is_none() && uri.authority().is_some_and(|to| !to.as_str().contains('@'));
    if is_known && is_plain { Ok(uri) } else { Err(invalid()) }
}

fn headers(settings: &Settings) -> Result<HeaderMap, InvalidEndpoint> {
    const RESERVED: [&str; 6] =
        ["content-type", "content-length", "te", "host", "connection", "transfer-encoding"];
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    for (name, value) in &settings.headers.0 {
        let invalid = || InvalidEndpoint::Header(name.clone());
        let key = HeaderName::from_str(name).map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        if RESERVED.contains(&key.as_str()) || key.as_str().starts_with("grpc-") {
            return Err(invalid());
        }
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

/// TLS that trusts no server, for `http`.
fn without_authorities() -> Result<ClientConfig, InvalidEndpoint> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| InvalidEndpoint::Provider(error.to_string()))?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Headers;

    #[test]
    fn endpoints_are_checked() {
        for text in ["http://localhost:4317", "https://collector.example", "http://[::1]:4318/otlp/"] {
            endpoint(text).unwrap();
        }
        for text in ["", "localhost:4317", "ftp://a", "http://", "/v1", "http://a?b=c", "http://user:word@a"]
        {
            assert_eq!(endpoint(text), Err(InvalidEndpoint::Url(text.to_owned())));
        }
        let settings = Settings { endpoint: "https://a".to_owned(), ..Settings::default() };
        assert_eq!(Client::new(&settings, None).unwrap_err(), InvalidEndpoint::Tls("https://a".to_owned()));
    }

    #[test]
    fn headers_are_checked_and_secret() {
        let with = |name: &str, value: &str| {
            let headers = Headers([(name.to_owned(), value.to_owned())].into());
            super::headers(&Settings { headers, ..Settings::default() })
        };
        let shown = format!("{:?}", with("Authorization", "Bearer word").unwrap());
        assert!(!shown.contains("word"), "{shown}");
        for (name, value) in [("a b", "c"), ("a", "b\n"), ("grpc-timeout", "1S"), ("Host", "a")] {
            assert_eq!(with(name, value), Err(InvalidEndpoint::Header(name.to_owned())));
        }
    }
}
