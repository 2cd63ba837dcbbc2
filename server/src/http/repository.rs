//! Model repository extension: index, load, unload.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use http::HeaderMap;
use node::catalog::LoadParameters;
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
    let limit = front.limits.protocol.body_bytes;
    let (body, _held) = body::read(&headers, sent, &front.bodies, limit, front.limits.body_timeout).await?;
    let sent = load_parameters(&parse::<ControlRequest<'_>>(&body)?.parameters)?;
    response::json(&front.service.node.load(&target.model, sent).await?)
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

/// The parameters of a load: `config` is JSON in a string, and `file:VERSION/NAME` a file in base64.
fn load_parameters(sent: &BTreeMap<String, &serde_json::value::RawValue>) -> Result<LoadParameters, Refusal> {
    let mut parameters = LoadParameters::default();
    for (name, value) in sent {
        let text: String =
            serde_json::from_str(value.get()).map_err(|_| wrong_parameter(name, "expected a string"))?;
        add_load_parameter(&mut parameters, name, text.into_bytes(), |text| {
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| wrong_parameter(name, &format!("expected base64: {error}")))
        })?;
    }
    Ok(parameters)
}

/// Adds one parameter of a load. `decode` gives the bytes of a file.
pub fn add_load_parameter(
    parameters: &mut LoadParameters,
    name: &str,
    value: Vec<u8>,
    decode: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, Refusal>,
) -> Result<(), Refusal> {
    if name == "config" {
        let text = String::from_utf8(value).map_err(|_| wrong_parameter(name, "expected UTF-8"))?;
        parameters.config = Some(text);
    } else if let Some(path) = name.strip_prefix("file:") {
        parameters.files.insert(path.to_owned(), decode(value)?.into());
    } else {
        return Err(unsupported(name, "expected `config` or `file:VERSION/NAME`"));
    }
    Ok(())
}

/// The refusal of a parameter's value.
pub fn wrong_parameter(name: &str, expected: &str) -> Refusal {
    let shown: String = name.chars().take(64).collect();
    Refusal::new(Reason::Malformed, format!("parameters.{shown}: {expected}"))
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
