//! Model repository extension: index, load, unload.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use node::reason::{Reason, Refusal};
use oip::metadata::RepositoryIndexRequest;
use serde::Deserialize;

use super::body;
use super::response::{self, Refused};
use super::route::OwnedTarget;
use crate::front::Front;

/// Control messages are small.
pub const CONTROL_BODY: usize = 64 * 1024;

#[derive(Default, Deserialize)]
struct ControlRequest<'a> {
    #[serde(default, borrow)]
    parameters: BTreeMap<String, &'a serde_json::value::RawValue>,
}

pub async fn index(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let body = control_body(&front, &headers, sent).await?;
    let request: RepositoryIndexRequest = parse(&body)?;
    response::json(&front.service.node.index(request.ready))
}

pub async fn load(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    check_load_parameters(parameters(&front, &headers, sent).await?.iter())?;
    response::json(&front.service.node.load(&target.model).await?)
}

pub async fn unload(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    check_unload_parameters(parameters(&front, &headers, sent).await?.iter())?;
    front.service.node.unload(&target.model).await?;
    Ok(response::empty())
}

/// Names of the parameters of a control message.
async fn parameters(
    front: &Front,
    headers: &HeaderMap,
    sent: axum::body::Body,
) -> Result<Vec<String>, Refusal> {
    let body = control_body(front, headers, sent).await?;
    let request: ControlRequest<'_> = parse(&body)?;
    Ok(request.parameters.into_keys().collect())
}

/// Loading takes the model as the repository has it: no parameter replaces its configuration or files.
pub fn check_load_parameters<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<(), Refusal> {
    names
        .next()
        .map_or(Ok(()), |name| Err(unsupported(name, "change the model in the repository and load it again")))
}

/// Accepts `unload_dependents`, which has no effect: models have no dependents.
pub fn check_unload_parameters<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<(), Refusal> {
    names
        .find(|name| name.as_str() != "unload_dependents")
        .map_or(Ok(()), |name| Err(unsupported(name, "only `unload_dependents` is known")))
}

fn unsupported(name: &str, instead: &str) -> Refusal {
    let shown: String = name.chars().take(64).collect();
    Refusal::new(Reason::Unsupported, format!("parameters.{shown}: not supported: {instead}"))
}

/// Reads the body of a control message.
pub async fn control_body(
    front: &Front,
    headers: &HeaderMap,
    sent: axum::body::Body,
) -> Result<bytes::Bytes, Refusal> {
    let (body, _held) =
        body::read(headers, sent, &front.bodies, CONTROL_BODY, front.limits.body_timeout).await?;
    Ok(body)
}

/// Parses the body of a control message; an empty one is the default.
pub fn parse<'a, T: Default + Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body)
        .map_err(|error| Refusal::new(Reason::Malformed, format!("request body: {error}")))
}

/// For calls whose body says nothing.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Refuses a body that says something.
pub async fn take_nothing(front: &Front, headers: &HeaderMap, sent: axum::body::Body) -> Result<(), Refusal> {
    parse(&control_body(front, headers, sent).await?).map(|Nothing {}| ())
}
