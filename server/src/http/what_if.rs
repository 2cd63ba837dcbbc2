//! Questions to the simulator about the server's own traffic.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use super::repository::{control_body, parse};
use super::response::{self, Refused};
use crate::front::Front;
use crate::what_if::Question;

pub async fn ask(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let question: Question = parse(&control_body(&front, &headers, sent).await?)?;
    response::json(&front.what_if.ask(&front.activity, &front.service.node, question).await?)
}
