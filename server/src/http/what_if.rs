//! Questions to the simulator about the server's own traffic.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use super::response::Refused;
use crate::front::Front;

#[cfg(feature = "tools")]
pub async fn ask(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    use super::repository::{control_body, parse};

    let question: crate::what_if::Question = parse(&control_body(&front, &headers, sent).await?)?;
    super::response::json(&front.what_if.ask(&front.activity, &front.service.node, question).await?)
}

#[cfg(not(feature = "tools"))]
pub async fn ask(
    State(_): State<Arc<Front>>,
    _: HeaderMap,
    _: axum::body::Body,
) -> Result<Response, Refused> {
    use node::reason::{Reason, Refusal};

    let message = "what-if: this server was built without the feature `tools`, which has the simulator";
    Err(Refusal::new(Reason::Unsupported, message).into())
}
