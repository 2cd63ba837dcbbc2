//! The configuration of the server: what is in force, what a reload would change, and the reload.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::HeaderMap;
use node::config::CONFIG_BYTES;
use node::reason::{Reason, Refusal};

use super::body;
use super::response::{self, Refused};
use crate::front::Front;

pub async fn view(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    response::json(&front.service.node.configuration())
}

pub async fn reload(
    State(front): State<Arc<Front>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let dry_run = dry_run(query.as_deref().unwrap_or_default())?;
    let (body, _held) =
        body::read(&headers, sent, &front.bodies, CONFIG_BYTES, front.limits.body_timeout).await?;
    let text = text(&body)?;
    if dry_run {
        return response::json(&front.service.node.preview_reload(text).await?);
    }
    if text.is_some() {
        let expected = "expected no body, because the server reloads its own file; `?dry_run=true` tells what a file would change";
        return Err(Refusal::new(Reason::Unsupported, format!("request body: {expected}")).into());
    }
    response::json(&front.reloads.reload().await?)
}

/// The text of a configuration file. `None`: nothing was sent.
fn text(body: &[u8]) -> Result<Option<String>, Refusal> {
    if body.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        Refusal::new(
            Reason::Malformed,
            format!("request body: {error}: expected a configuration file in TOML"),
        )
    })?;
    Ok(Some(text.to_owned()))
}

fn dry_run(query: &str) -> Result<bool, Refusal> {
    let mut dry_run = false;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        dry_run = match (&*name, &*value) {
            ("dry_run", "true") => true,
            ("dry_run", "false") => false,
            _ => {
                let shown: String = name.chars().take(64).collect();
                let message = format!("query `{shown}`: expected `dry_run=true` or `dry_run=false`");
                return Err(Refusal::new(Reason::Malformed, message));
            }
        };
    }
    Ok(dry_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_is_not_understood_reloads_nothing() {
        assert!(dry_run("dry_run=true").unwrap() && !dry_run("").unwrap());
        for wrong in ["dryrun=true", "dry_run=1", "dry_run", "dry_run=true&x=1"] {
            assert!(dry_run(wrong).unwrap_err().message.contains("expected `dry_run=true`"), "{wrong}");
        }
    }
}
