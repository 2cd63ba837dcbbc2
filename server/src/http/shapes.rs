//! Shapes of the requests of a model.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use oip::metadata::ModelShapes;

use super::response::{self, Refused};
use super::route::OwnedTarget;
use crate::front::Front;

/// Most shapes in an answer.
const SHAPES_TOLD: usize = 64;

pub async fn model(State(front): State<Arc<Front>>, target: OwnedTarget) -> Result<Response, Refused> {
    let loaded = front.service.node.catalog().find(&target.model, target.version.as_deref())?;
    let counts = loaded.shapes.counts();
    let distinct = u64::try_from(counts.shapes.len()).unwrap_or(u64::MAX);
    response::json(&ModelShapes {
        model_name: loaded.name.clone(),
        model_version: loaded.version.to_string(),
        fixed: loaded.shapes.are_fixed(),
        requests: counts.requests,
        other: counts.other,
        distinct,
        shapes: counts.shapes.into_iter().take(SHAPES_TOLD).collect(),
    })
}
