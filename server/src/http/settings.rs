//! Trace and log settings over REST.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use node::reason::Refusal;
use serde_json::{Map, Value};

use super::repository::{control_body, parse};
use super::response::{self, Refused};
use super::route::OwnedTarget;
use crate::front::Front;
use crate::settings::{LogSettings, LogValue, change_logging};
use crate::trace::{LEVEL, SentValue};

pub async fn trace(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    shown(&front, None)
}

pub async fn model_trace(State(front): State<Arc<Front>>, target: OwnedTarget) -> Result<Response, Refused> {
    shown(&front, Some(known(&front, &target)?))
}

pub async fn set_trace(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    change(&front, None, &headers, sent).await
}

pub async fn set_model_trace(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    change(&front, Some(known(&front, &target)?), &headers, sent).await
}

/// The name of a model that serves.
fn known<'a>(front: &Front, target: &'a OwnedTarget) -> Result<&'a str, Refusal> {
    front.service.model(&target.model, None)?;
    Ok(&target.model)
}

async fn change(
    front: &Arc<Front>,
    model: Option<&str>,
    headers: &HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let body = control_body(front, headers, sent).await?;
    let sent: Map<String, Value> = parse(&body)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let value = |value: Value| match value {
        Value::Null => SentValue::Clear,
        Value::String(text) => SentValue::One(text),
        Value::Array(list) => {
            list.iter().map(text).collect::<Option<_>>().map_or(SentValue::Other, SentValue::Many)
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => SentValue::Other,
    };
    front.traces.change(model, sent.into_iter().map(|(name, sent)| (name, value(sent))).collect())?;
    shown(front, model)
}

fn shown(front: &Front, model: Option<&str>) -> Result<Response, Refused> {
    let settings = front.traces.settings(model).into_iter().map(|(name, values)| {
        let value = if name == LEVEL { Value::from(values) } else { Value::from(values.concat()) };
        (name.to_owned(), value)
    });
    response::json(&settings.collect::<Map<String, Value>>())
}

pub async fn logging() -> Result<Response, Refused> {
    response::json(&LogSettings::now())
}

pub async fn set_logging(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let body = control_body(&front, &headers, sent).await?;
    let sent: Map<String, Value> = parse(&body)?;
    let value = |value: Value| match value {
        Value::Bool(on) => LogValue::Bool(on),
        Value::String(text) => LogValue::Text(text),
        Value::Number(number) => {
            let number = number.as_u64().and_then(|number| u32::try_from(number).ok());
            number.map_or(LogValue::Other, LogValue::Number)
        }
        Value::Null | Value::Array(_) | Value::Object(_) => LogValue::Other,
    };
    let wanted: Vec<_> = sent.into_iter().map(|(name, sent)| (name, value(sent))).collect();
    response::json(&change_logging(&wanted)?)
}
