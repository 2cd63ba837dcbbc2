//! Shared memory extensions: system regions, and rejections of CUDA regions.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use node::reason::{Reason, Refusal};
use serde::Deserialize;

use super::repository::{control_body, parse};
use super::response::{self, Refused};
use super::route::RegionName;
use crate::front::Front;
use crate::settings::CUDA_REFUSED;

#[derive(Default, Deserialize)]
struct RegisterRequest {
    key: Option<String>,
    #[serde(default)]
    offset: u64,
    byte_size: Option<u64>,
}

pub async fn status(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    response::json(&front.shared_memory()?.status(None)?)
}

pub async fn region_status(State(front): State<Arc<Front>>, region: RegionName) -> Result<Response, Refused> {
    response::json(&front.shared_memory()?.status(Some(&region.0))?)
}

pub async fn register(
    State(front): State<Arc<Front>>,
    region: RegionName,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let memory = front.shared_memory()?;
    let body = control_body(&front, &headers, sent).await?;
    let request: RegisterRequest = parse(&body)?;
    let missing = |field: &str| {
        Refusal::new(Reason::Malformed, format!("request body: `{field}` is missing: expected a value"))
    };
    let key = request.key.ok_or_else(|| missing("key"))?;
    let byte_size = request.byte_size.ok_or_else(|| missing("byte_size"))?;
    memory.register(&region.0, &key, request.offset, byte_size)?;
    Ok(response::empty())
}

pub async fn unregister(State(front): State<Arc<Front>>, region: RegionName) -> Result<Response, Refused> {
    front.shared_memory()?.unregister(Some(&region.0));
    Ok(response::empty())
}

pub async fn unregister_all(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    front.shared_memory()?.unregister(None);
    Ok(response::empty())
}

pub async fn cuda_status() -> Result<Response, Refused> {
    response::json(&[(); 0])
}

/// No region is ever registered, so the requested state already holds.
pub async fn cuda_unregister() -> Response {
    response::empty()
}

pub async fn cuda_unsupported() -> Refused {
    Refusal::new(Reason::Unsupported, CUDA_REFUSED).into()
}
