//! Trace and log settings over REST.

use axum::response::Response;
use node::reason::{Reason, Refusal};
use serde_json::{Map, Value};

use super::response::{self, Refused};
use crate::settings::{LOG_REFUSED, LogSettings, TRACE, TRACE_REFUSED};

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

pub async fn set_logging() -> Refused {
    Refusal::new(Reason::Unsupported, LOG_REFUSED).into()
}
