//! Model configuration extension.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::response::{self, Refused};
use super::route::OwnedTarget;
use crate::front::Front;
use crate::model_config;

pub async fn model(State(front): State<Arc<Front>>, target: OwnedTarget) -> Result<Response, Refused> {
    let view = front.service.model(&target.model, target.version.as_deref())?;
    response::json(&model_config::model_config(&view))
}
