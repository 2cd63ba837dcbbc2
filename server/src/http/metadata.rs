//! Who the server is, and the signatures and configurations of its models.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use oip::metadata::{ModelMetadata, ServerMetadata};

use super::response::{self, Refused};
use super::route::OwnedTarget;
use crate::front::Front;
use crate::{model_config, model_metadata};

pub async fn server(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    response::json(&ServerMetadata::from(model_metadata::server(&front)))
}

pub async fn model(State(front): State<Arc<Front>>, target: OwnedTarget) -> Result<Response, Refused> {
    let view = front.service.model(&target.model, target.version.as_deref())?;
    response::json(&ModelMetadata::from(model_metadata::model(&view, target.version.is_some())))
}

pub async fn model_configuration(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
) -> Result<Response, Refused> {
    let view = front.service.model(&target.model, target.version.as_deref())?;
    response::json(&model_config::model_config(&view))
}
