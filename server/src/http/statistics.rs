//! Statistics extension.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use oip::proto::ModelStatisticsResponse;

use super::response::{self, Refused};
use super::route::OwnedTarget;
use crate::front::Front;

pub async fn all(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    response::json(&ModelStatisticsResponse { model_stats: front.service.statistics(None, None)? })
}

pub async fn model(State(front): State<Arc<Front>>, target: OwnedTarget) -> Result<Response, Refused> {
    let model_stats = front.service.statistics(Some(&target.model), target.version.as_deref())?;
    response::json(&ModelStatisticsResponse { model_stats })
}
