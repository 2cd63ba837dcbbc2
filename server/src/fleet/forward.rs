//! Forwards a request to a node that has its model: one hop, with what is left of its time, as the bytes that came in.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::TE;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use node::config;
use node::metrics::{ForwardOutcome, NodeMetrics};
use node::reason::{Reason, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::metadata::MetadataValue;

use super::client::{self, Client};
use super::follow::{self, Followed};
use super::headers::{self, FORWARDED, NODE, elapsed};
use super::views::{Elsewhere, Views};
use crate::service::Service;

const REASON: HeaderName = HeaderName::from_static("x-tessera-reason");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The other nodes of the configuration.
pub struct Peers {
    /// Name of this node.
    name: HeaderValue,
    forwards: bool,
    nodes: Vec<Arc<Peer>>,
    client: Client,
    views: Arc<Mutex<Views>>,
    permits: Arc<Semaphore>,
    /// `fleet.forwards`, for messages.
    forwards_max: usize,
    _following: JoinSet<()>,
}

struct Peer {
    name: HeaderValue,
    http: Uri,
    grpc: Uri,
    metrics: Arc<NodeMetrics>,
}

/// By which interface a request came in and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// The REST interface.
    Http,
    /// The gRPC interface.
    Grpc,
}

/// Nodes that take requests of a model, best first.
#[derive(Debug)]
pub struct Candidates(Vec<usize>);

/// A request as it came in.
pub struct Onward<'a> {
    /// The interface.
    pub interface: Interface,
    /// Method, path and headers.
    pub parts: &'a Parts,
    /// The body.
    pub body: Bytes,
    /// When it came in.
    pub arrived: Instant,
    /// The transport's timeout, from then on.
    pub timeout: Option<Duration>,
}

/// The body of an answer of another node. It counts as forwarded until it is dropped.
pub struct Answer {
    body: Incoming,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Peers {
    /// Follows the nodes of a configuration from now on. `None`: it names no server.
    ///
    /// # Errors
    /// Names the setting that cannot be used.
    pub fn start(config: &config::Fleet) -> Result<Option<Self>, String> {
        let Some(name) = &config.node else { return Ok(None) };
        let name = header("fleet.node", name)?;
        let client = client::new(config).map_err(|reason| format!("fleet.ca: {reason}"))?;
        let key = config.key().map_err(|reason| format!("fleet.key_file: {reason}"))?;
        let key = key.map(|key| MetadataValue::try_from(format!("Bearer {key}")));
        let key = key.transpose().map_err(|error| format!("fleet.key_file: {error}"))?;
        let others = config.others();
        let views = Arc::new(Mutex::new(Views::new(others.len())));
        let (mut nodes, mut following) = (Vec::new(), JoinSet::new());
        for (number, other) in others.into_iter().enumerate() {
            let metrics = Arc::new(NodeMetrics::new(&other.name));
            let uri = |address| client::origin(address).map_err(|reason| format!("fleet.nodes: {reason}"));
            let (http, grpc) = (uri(&other.http)?, uri(&other.grpc)?);
            nodes.push(Arc::new(Peer {
                name: header("fleet.nodes", &other.name)?,
                http,
                grpc: grpc.clone(),
                metrics: Arc::clone(&metrics),
            }));
            let followed = Followed { number, name: other.name, grpc, key: key.clone(), metrics };
            following.spawn(follow::run(followed, client.clone(), Arc::clone(&views)));
        }
        Ok(Some(Self {
            name,
            forwards: config.forward && !nodes.is_empty(),
            nodes,
            client,
            views,
            permits: Arc::new(Semaphore::new(config.forwards.get())),
            forwards_max: config.forwards.get(),
            _following: following,
        }))
    }

    /// Whether a request with these headers may go to another node.
    pub fn may_forward(&self, headers: &HeaderMap) -> bool {
        self.forwards && !headers.contains_key(FORWARDED)
    }

    /// Where else a model is. `None`: this node answers, or refuses it.
    ///
    /// # Errors
    /// Only other nodes have the model, and none of them takes requests of it.
    pub fn elsewhere(&self, service: &Service, model: &str) -> Result<Option<Candidates>, Refusal> {
        let Err(here) = service.node.catalog().find(model, None) else { return Ok(None) };
        if !matches!(here.reason, Reason::UnknownModel | Reason::ModelNotReady) {
            return Ok(None);
        }
        match self.views.lock().unwrap_or_else(PoisonError::into_inner).of(model) {
            Elsewhere::On(nodes) => Ok(Some(Candidates(nodes))),
            Elsewhere::NotReady if here.reason == Reason::UnknownModel => Err(Refusal::new(
                Reason::ModelNotReady,
                format!("model `{model}` is on other nodes only, and none of them takes requests of it now"),
            )),
            Elsewhere::NotReady | Elsewhere::Nowhere => Ok(None),
        }
    }

    /// Sends a request to the first candidate that takes it, and returns its answer, which names the node.
    ///
    /// # Errors
    /// No candidate can be reached, the request's time is over, or too many requests are being forwarded.
    pub async fn forward(
        &self,
        Candidates(candidates): Candidates,
        request: Onward<'_>,
    ) -> Result<Response<Answer>, Refusal> {
        let peers: Vec<Arc<Peer>> =
            candidates.iter().filter_map(|number| self.nodes.get(*number).cloned()).collect();
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            peers.first().into_iter().for_each(|peer| peer.metrics.forwarded(ForwardOutcome::Limit));
            let most = self.forwards_max;
            Refusal::new(Reason::QueueFull, format!("{most} requests are being forwarded (`fleet.forwards`)"))
        })?;
        let mut onward = headers::onward(&request.parts.headers, &self.name);
        if request.interface == Interface::Grpc {
            onward.insert(TE, HeaderValue::from_static("trailers"));
        }
        let mut last = Refusal::new(Reason::NodeUnreachable, "no other node has the model any more");
        let mut peers = peers.into_iter().peekable();
        while let Some(peer) = peers.next() {
            match self.attempt(&peer, &request, &mut onward).await {
                Ok(answer) if peers.peek().is_some() && is_elsewhere(answer.headers()) => {
                    peer.metrics.forwarded(ForwardOutcome::Refused);
                }
                Ok(mut answer) => {
                    peer.metrics.forwarded(outcome(&answer));
                    answer.headers_mut().insert(NODE, peer.name.clone());
                    return Ok(answer.map(|body| Answer { body, _permit: permit }));
                }
                Err(Failed { outcome, may_go_on, refusal }) => {
                    peer.metrics.forwarded(outcome);
                    if !may_go_on {
                        return Err(refusal);
                    }
                    last = refusal;
                }
            }
        }
        Err(last)
    }

    async fn attempt(
        &self,
        peer: &Peer,
        request: &Onward<'_>,
        headers: &mut HeaderMap,
    ) -> Result<Response<Incoming>, Failed> {
        let name = peer.name.to_str().unwrap_or_default();
        let elapsed = request.arrived.elapsed();
        let left = request.timeout.map(|timeout| timeout.saturating_sub(elapsed));
        let expired = || Failed {
            outcome: ForwardOutcome::Expired,
            may_go_on: false,
            refusal: Refusal::new(
                Reason::Expired,
                format!("the deadline passed before node `{name}` answered"),
            ),
        };
        if left.is_some_and(|left| left.is_zero()) {
            return Err(expired());
        }
        headers::set_times(headers, elapsed, left);
        let to = match request.interface {
            Interface::Http => &peer.http,
            Interface::Grpc => &peer.grpc,
        };
        let mut sent = Request::new(Body::new(Full::new(request.body.clone())));
        *sent.method_mut() = request.parts.method.clone();
        *sent.uri_mut() = at(to, request.parts.uri.path_and_query());
        *sent.headers_mut() = headers.clone();
        let answering = client::send(&self.client, sent);
        let answered = match left {
            None => answering.await,
            Some(left) => tokio::time::timeout(left, answering).await.map_err(|_| expired())?,
        };
        answered.map_err(|error| Failed {
            outcome: ForwardOutcome::Unreachable,
            may_go_on: error.before_sending,
            refusal: Refusal::new(
                Reason::NodeUnreachable,
                if error.before_sending {
                    format!("node `{name}`, which has the model, cannot be reached: {}", error.reason)
                } else {
                    format!("node `{name}` did not answer: {}", error.reason)
                },
            ),
        })
    }
}

/// A node that did not answer.
struct Failed {
    outcome: ForwardOutcome,
    /// Whether another node may get the request: this one cannot have run it.
    may_go_on: bool,
    refusal: Refusal,
}

/// Whether the node refused the request without running it, so that another one may take it.
fn is_elsewhere(headers: &HeaderMap) -> bool {
    let elsewhere = [Reason::Draining, Reason::UnknownModel, Reason::ModelNotReady];
    headers.get(REASON).is_some_and(|word| elsewhere.iter().any(|reason| word == reason.label()))
}

/// An error of a gRPC call that comes after a first message is in the trailers, and counts as an answer.
fn outcome(answer: &Response<Incoming>) -> ForwardOutcome {
    let failed = answer.headers().get(GRPC_STATUS).is_some_and(|status| status != "0");
    if answer.status().is_success() && !failed { ForwardOutcome::Answered } else { ForwardOutcome::Refused }
}

fn header(setting: &str, name: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(name).map_err(|error| format!("{setting}: `{name}`: {error}"))
}

/// The path of a request on another node.
fn at(node: &Uri, path: Option<&PathAndQuery>) -> Uri {
    let mut parts = node.clone().into_parts();
    parts.path_and_query = Some(path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    // A scheme, an authority and a path always make a URL.
    Uri::from_parts(parts).unwrap_or_else(|_| node.clone())
}

/// The arrival of a request at its first node, which its deadline counts from.
pub fn arrival(headers: &HeaderMap, arrived: Instant) -> Instant {
    arrived.checked_sub(elapsed(headers)).unwrap_or(arrived)
}
