//! Roll-outs of new versions: where they stand, and the commands of an operator.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use super::repository::take_nothing;
use super::response::{self, Refused};
use super::route::OwnedTarget;
use crate::front::Front;

pub async fn view(State(front): State<Arc<Front>>, target: OwnedTarget) -> Result<Response, Refused> {
    response::json(&front.service.node.catalog().rollout(&target.model)?)
}

pub async fn promote(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    end(&front, &target, &headers, sent, true).await
}

pub async fn roll_back(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    end(&front, &target, &headers, sent, false).await
}

async fn end(
    front: &Front,
    target: &OwnedTarget,
    headers: &HeaderMap,
    sent: axum::body::Body,
    promote: bool,
) -> Result<Response, Refused> {
    take_nothing(front, headers, sent).await?;
    response::json(&front.service.node.end_rollout(&target.model, promote).await?)
}
