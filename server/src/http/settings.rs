//! Trace and log settings over REST.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use node::reason::{Reason, Refusal};
use serde_json::{Map, Value};

use super::repository::{control_body, parse};
use super::response::{self, Refused};
use crate::front::Front;
use crate::settings::{LogSettings, LogValue, TRACE, TRACE_REFUSED, change_logging};

pub async fn trace() -> Result<Response, Refused> {
    let settings: Map<String, Value> = TRACE
        .iter()
        .map(|&(name, value)| {
            // The level is the one setting that is a list.
            let value = if name == "trace_level" { Value::from(vec![value]) } else { Value::from(value) };
            (name.to_owned(), value)
        })
        .collect();
    response::json(&settings)
}

pub async fn logging() -> Result<Response, Refused> {
    response::json(&LogSettings::now())
}

pub async fn set_trace() -> Refused {
    Refusal::new(Reason::Unsupported, TRACE_REFUSED).into()
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
