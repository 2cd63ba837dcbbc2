//! Live and ready. "No" is a 4xx, as the protocol has it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::response;
use super::route::OwnedTarget;
use crate::front::Front;

const LIVE: &str = r#"{"live":true}"#;
const READY: &str = r#"{"ready":true}"#;

pub async fn live(State(front): State<Arc<Front>>) -> Response {
    response::truth(front.live(), LIVE, "the server is not live")
}

pub async fn ready(State(front): State<Arc<Front>>) -> Response {
    let reason = front.not_ready();
    response::truth(reason.is_none(), READY, &format!("not ready: {}", reason.unwrap_or_default()))
}

pub async fn model(State(front): State<Arc<Front>>, target: OwnedTarget) -> Response {
    let ready = front.model_ready(&target.model, target.version.as_deref());
    response::truth(ready, READY, "model version not ready")
}
