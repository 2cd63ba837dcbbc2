//! A `ModelInfer` call of a server with other nodes: answered here, or by a node that has the model.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use node::reason::Refusal;
use tonic::body::Body;
use tonic::metadata::MetadataMap;

use super::model_name::{self, Found};
use super::timeout;
use crate::fleet::{Candidates, Interface, Onward, Peers};
use crate::front::Front;
use crate::http::body;

/// Most that is read of a message to find the name of its model.
const FIRST_BYTES_MAX: usize = 64 * 1024;
/// The prefix of a message, which is not part of it.
const PREFIX_BYTES: usize = 5;

type BoxError = Box<dyn Error + Send + Sync>;

/// What becomes of a call.
pub enum Routed<B> {
    /// This node answers it.
    Here(Request<Replayed<B>>),
    /// Another node answered it.
    Answered(Response<Body>),
}

/// A body whose first bytes were read already.
pub struct Replayed<B> {
    first: Option<Bytes>,
    rest: B,
}

impl<B> Replayed<B> {
    /// A body of which nothing was read.
    pub fn new(rest: B) -> Self {
        Self { first: None, rest }
    }
}

impl<B> HttpBody for Replayed<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match this.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut this.rest).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.first.is_some() { SizeHint::default() } else { self.rest.size_hint() }
    }
}

/// Looks at the first bytes of a message, and forwards it if only another node has its model.
///
/// # Errors
/// Nodes that have the model do not answer it.
pub async fn route<B>(front: &Arc<Front>, peers: &Peers, request: Request<B>) -> Result<Routed<B>, Refusal>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    let arrived = Instant::now();
    let (parts, rest) = request.into_parts();
    let mut replayed = Replayed::new(rest);
    let naming = read_name(&parts, &mut replayed);
    let name = tokio::time::timeout(front.limits.body_timeout, naming).await;
    // A body that does not arrive, or breaks, is refused where it is read to its end.
    let name = name.ok().flatten();
    let elsewhere = name.map(|name| peers.elsewhere(&front.service, &name)).transpose()?.flatten();
    match elsewhere {
        None => Ok(Routed::Here(Request::from_parts(parts, replayed))),
        Some(candidates) => {
            forward(front, peers, candidates, &parts, replayed, arrived).await.map(Routed::Answered)
        }
    }
}

async fn forward<B>(
    front: &Arc<Front>,
    peers: &Peers,
    candidates: Candidates,
    parts: &Parts,
    body: Replayed<B>,
    arrived: Instant,
) -> Result<Response<Body>, Refusal>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    let in_flight = front.enter_forwarded()?;
    let limit = front.limits.protocol.body_bytes.saturating_add(PREFIX_BYTES);
    let (body, _held) =
        body::read(&parts.headers, body, &front.bodies, limit, front.limits.body_timeout).await?;
    let timeout = timeout::of(&MetadataMap::from_headers(parts.headers.clone()));
    let onward = Onward { interface: Interface::Grpc, parts, body, arrived, timeout };
    let answer = peers.forward(candidates, onward).await?;
    Ok(answer.map(|body| Body::new(in_flight.during(body))))
}

/// Reads until the name of the model is known. `None`: it cannot be found.
async fn read_name<B>(parts: &Parts, body: &mut Replayed<B>) -> Option<String>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let coding = parts.headers.get("grpc-encoding").and_then(|coding| coding.to_str().ok());
    loop {
        match model_name::find(body.first.as_deref().unwrap_or_default(), coding) {
            Found::Name(name) => return Some(name),
            Found::Nothing => return None,
            Found::NotYet => {}
        }
        let frame = poll_fn(|context| Pin::new(&mut body.rest).poll_frame(context)).await;
        let data = frame?.ok()?.into_data().ok()?;
        body.first = Some(match body.first.take() {
            None => data,
            Some(first) => {
                let mut joined = BytesMut::from(first);
                joined.extend_from_slice(&data);
                joined.freeze()
            }
        });
        if body.first.as_ref().is_some_and(|first| first.len() > FIRST_BYTES_MAX)
            && model_name::find(body.first.as_deref().unwrap_or_default(), coding) == Found::NotYet
        {
            return None;
        }
    }
}
