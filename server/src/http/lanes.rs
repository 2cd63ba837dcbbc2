//! Lanes: their state, and the operator command to restart one.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use node::reason::{Reason, Refusal};

use super::repository::take_nothing;
use super::response::{self, Refused};
use crate::front::Front;

pub async fn view(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    response::json(&front.service.node.supervisor().view().await?)
}

pub async fn enable(
    State(front): State<Arc<Front>>,
    Path(lane): Path<String>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    take_nothing(&front, &headers, sent).await?;
    let number = lane.parse().map_err(|_| {
        let shown: String = lane.chars().take(32).collect();
        Refusal::new(
            Reason::UnknownPath,
            format!("lane `{shown}`: expected a number like those of `GET /v2/lanes`"),
        )
    })?;
    front.service.node.supervisor().enable(number).await?;
    Ok(response::empty())
}
