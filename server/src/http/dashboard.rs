//! The dashboard: a page of static files, and what the server did lately as a stream of events.
//!
//! The files hold no data, so they are served without a credential: a browser cannot send one for a page.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue};
use node::reason::{Reason, Refusal};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::response::{self, JSON, Refused};
use crate::front::{Front, VIEWERS};

const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
/// Nothing from elsewhere, nothing inline, and no frame around it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// A file of the page.
struct Asset {
    name: &'static str,
    media_type: &'static str,
    content: &'static str,
}

macro_rules! assets {
    ($($name:literal: $media_type:literal),+ $(,)?) => {
        &[$(Asset {
            name: $name,
            media_type: concat!($media_type, "; charset=utf-8"),
            content: include_str!(concat!("dashboard/page/", $name)),
        }),+]
    };
}

const ASSETS: &[Asset] = assets![
    "index.html": "text/html",
    "style.css": "text/css",
    "actions.js": "text/javascript",
    "app.js": "text/javascript",
    "devices.js": "text/javascript",
    "element.js": "text/javascript",
    "families.js": "text/javascript",
    "jobs.js": "text/javascript",
    "now.js": "text/javascript",
    "requests.js": "text/javascript",
    "server.js": "text/javascript",
    "timeline.js": "text/javascript",
    "what_if.js": "text/javascript",
];

pub async fn page() -> Result<Response, Refused> {
    asset("index.html")
}

pub async fn file(Path(name): Path<String>) -> Result<Response, Refused> {
    asset(&name)
}

fn asset(name: &str) -> Result<Response, Refused> {
    let unknown = || Refusal::new(Reason::UnknownPath, "the dashboard has no such file");
    let asset = ASSETS.iter().find(|asset| asset.name == name).ok_or_else(unknown)?;
    let headers: [(HeaderName, HeaderValue); 5] = [
        (CONTENT_TYPE, HeaderValue::from_static(asset.media_type)),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // Another version of the server has other files.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    Ok((headers, asset.content).into_response())
}

pub async fn activity(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    let json = front.activity.json(&front.service.node)?;
    Ok(([(CONTENT_TYPE, JSON)], json).into_response())
}

pub async fn timeline(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    response::json(&front.activity.timeline())
}

/// Each look as an event, until the client leaves or the server drains.
pub async fn events(State(front): State<Arc<Front>>) -> Result<Response, Refused> {
    let Ok(viewer) = Arc::clone(&front.viewers).try_acquire_owned() else {
        let message =
            format!("{VIEWERS} pages follow this server already: close one, or ask for /v2/activity");
        return Err(Refusal::new(Reason::QueueFull, message).into());
    };
    let (events, read) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    tokio::spawn(async move {
        let _viewer = viewer;
        let mut looks = front.activity.looks();
        while front.live() {
            let Ok(json) = front.activity.json(&front.service.node) else { return };
            let event = Bytes::from([b"data: ".as_slice(), &json, b"\n\n"].concat());
            let sent = async { events.send(Ok(event)).await.is_ok() && looks.changed().await.is_ok() };
            tokio::select! {
                biased;
                // There are no looks after it, and an open page would delay the end of the server.
                () = front.draining() => return,
                () = events.closed() => return,
                sent = sent => if !sent { return },
            }
        }
    });
    let body = axum::body::Body::from_stream(ReceiverStream::new(read));
    let headers = [(CONTENT_TYPE, EVENTS), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((headers, body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_only_files_that_there_are() {
        let names: Vec<&str> = ASSETS.iter().map(|asset| asset.name).collect();
        for asset in ASSETS {
            for part in asset
                .content
                .split(['"', '('])
                .filter_map(|part| part.strip_prefix("/dashboard/").or(part.strip_prefix("./")))
            {
                assert!(names.contains(&part), "{} loads {part}", asset.name);
            }
            assert!(
                !asset.content.contains("innerHTML")
                    && !asset.content.contains("http://")
                    && !asset.content.contains("https://")
                    || asset.content.contains("www.w3.org"),
                "{}",
                asset.name
            );
        }
    }

    #[test]
    fn what_if_offers_every_policy() {
        let page = include_str!("dashboard/page/index.html");
        for (policy, _) in router_core::batch::Policy::ALL {
            assert!(page.contains(&format!("<option>{policy}</option>")), "{policy}");
        }
    }
}
