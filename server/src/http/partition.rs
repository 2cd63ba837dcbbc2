//! Gpulets that follow the load: their state, and operator commands.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use node::reason::{Reason, Refusal};

use super::repository::{control_body, take_nothing};
use super::response::{self, Refused};
use crate::front::Front;

pub async fn view(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    response::json(&front.service.node.control()?.view().await?)
}

pub async fn plan(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let control = front.service.node.control()?;
    let body = control_body(&front, &headers, sent).await?;
    let plan = serde_json::from_slice(&body).map_err(|error| {
        let expected = "expected `{\"gpulets\": [...]}`, a plan as of `GET /v2/partition` without the ids";
        Refusal::new(Reason::Malformed, format!("request body: {error}: {expected}"))
    })?;
    response::json(&control.plan(plan).await?)
}

pub async fn freeze(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    take_nothing(&front, &headers, sent).await?;
    front.service.node.control()?.freeze().await?;
    Ok(response::empty())
}

pub async fn thaw(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    take_nothing(&front, &headers, sent).await?;
    front.service.node.control()?.thaw().await?;
    Ok(response::empty())
}
