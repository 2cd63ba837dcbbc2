//! Why requests ended as they did.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use node::reason::{Reason, Refusal};
use node::request_log::{Explanation, Query};
use serde::Serialize;

use super::response::{self, Refused};
use crate::front::Front;

/// The answer to a query for several requests.
#[derive(Serialize)]
struct List {
    requests: Vec<Explanation>,
}

pub async fn one(State(front): State<Arc<Front>>, Path(id): Path<String>) -> Result<Response, Refused> {
    let requests = front.service.node.requests();
    let entry = requests.find(&id).ok_or_else(|| {
        let shown: String = id.chars().take(128).collect();
        let message = format!(
            "request `{shown}`: not in the log; it has not ended, or more than `request_log.kept` requests ended since"
        );
        Refusal::new(Reason::UnknownRequest, message)
    })?;
    response::json(&requests.explain(entry, front.service.node.catalog().router()).await)
}

pub async fn list(State(front): State<Arc<Front>>, RawQuery(query): RawQuery) -> Result<Response, Refused> {
    let query = Query::parse(query.as_deref().unwrap_or_default())?;
    let log = front.service.node.requests();
    let requests = log.list(&query).iter().map(|entry| log.summary(entry)).collect();
    response::json(&List { requests })
}
