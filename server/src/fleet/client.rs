//! Connections to other nodes: HTTP/2 for both interfaces, one connection for each, with TLS where the list says `https`.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use node::config::{Fleet, NodeAddress};
use tonic::body::Body;

/// Time for a connection to a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A silent node is probed after this time.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// How long it has to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// HTTP/2 flow control: bytes that an answer may be ahead of its reader.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// HTTP/2 flow control: bytes that all answers of a connection may be ahead.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Sends requests to nodes; cheap to clone.
pub(super) type Client = legacy::Client<HttpsConnector<HttpConnector>, Body>;

/// Why a node did not answer.
#[derive(Debug)]
pub(super) struct SendError {
    /// Whether the node cannot have seen the request.
    pub before_sending: bool,
    /// What happened.
    pub reason: String,
}

/// A client for the nodes of a configuration.
///
/// # Errors
/// The certificates of authorities cannot be read.
pub(super) fn new(fleet: &Fleet) -> Result<Client, String> {
    let uses_tls = fleet.others().iter().any(|node| node.http.tls || node.grpc.tls);
    let tls = if uses_tls { identity::client_tls(fleet.ca.as_deref()) } else { identity::no_authorities() }?;
    let mut tls = Arc::unwrap_or_clone(tls);
    // The connector sets the protocols.
    tls.alpn_protocols.clear();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http2().wrap_connector(tcp);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_only(true)
        .http2_keep_alive_interval(PROBE_AFTER)
        .http2_keep_alive_timeout(PROBE_TIMEOUT)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(connector))
}

/// The address as the origin of requests.
///
/// # Errors
/// It is not one, which the configuration excludes.
pub(super) fn origin(address: &NodeAddress) -> Result<Uri, String> {
    address.to_string().parse().map_err(|error| format!("`{address}`: {error}"))
}

/// Sends a request once.
pub(super) async fn send(client: &Client, request: Request<Body>) -> Result<Response<Incoming>, SendError> {
    client
        .request(request)
        .await
        .map_err(|error| SendError { before_sending: error.is_connect(), reason: innermost(&error) })
}

/// The error at the end of the chain, which says what happened.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let last = std::iter::successors(Some(error), |error| error.source()).last();
    last.map_or_else(String::new, ToString::to_string)
}
