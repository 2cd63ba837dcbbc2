//! An inference request of a server with other nodes: answered here, or by a node that has the model.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use hyper::body::Body;
use node::reason::Refusal;

use super::response::HttpBody;
use super::route::Target;
use super::{body, infer};
use crate::fleet::{Candidates, Interface, Onward, Peers, arrival};
use crate::front::Front;
use crate::service::RequestContext;

/// Answers an inference request. Its deadline counts from its arrival at the first node.
pub async fn answer<B>(
    front: &Arc<Front>,
    peers: &Peers,
    target: Target<'_>,
    parts: &Parts,
    body: B,
    context: RequestContext,
) -> Result<Response<HttpBody>, Refusal>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    let context = RequestContext { arrived: arrival(&parts.headers, context.arrived), ..context };
    let elsewhere = match peers.may_forward(&parts.headers) {
        true => peers.elsewhere(&front.service, target.model),
        false => Ok(None),
    };
    let forwarded = match elsewhere {
        Ok(None) => return infer::answer(front, target, &parts.headers, body, context).await,
        Ok(Some(candidates)) => forward(front, peers, candidates, parts, body, &context).await,
        Err(refusal) => Err(refusal),
    };
    forwarded.map_err(|refusal| front.service.logged(&context, target.model, refusal))
}

async fn forward<B>(
    front: &Arc<Front>,
    peers: &Peers,
    candidates: Candidates,
    parts: &Parts,
    body: B,
    context: &RequestContext,
) -> Result<Response<HttpBody>, Refusal>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    let in_flight = front.enter_forwarded()?;
    let limits = &front.limits;
    let (body, _held) =
        body::read(&parts.headers, body, &front.bodies, limits.protocol.body_bytes, limits.body_timeout)
            .await?;
    let onward = Onward { interface: Interface::Http, parts, body, arrived: context.arrived, timeout: None };
    let answer = peers.forward(candidates, onward).await?;
    Ok(answer.map(|body| HttpBody::Routed(axum::body::Body::new(in_flight.during(body)))))
}
