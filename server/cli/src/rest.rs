//! Calls of a running server's REST interface.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use oip::metadata::ErrorBody;
use tokio::net::TcpStream;

/// Largest response that is read.
const ANSWER_BYTES: usize = 16 << 20;

/// Runs calls to their end, for at most this long.
pub fn wait_for<T>(timeout: Duration, call: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(timeout, call).await.context("the server did not answer in time")?
    })
}

/// Host and port of an address with or without `http://`.
pub fn authority(server: &str) -> &str {
    server.trim_start_matches("http://").trim_end_matches('/')
}

/// The body of a successful answer. The server's own words if it refuses.
pub async fn call(server: &str, method: Method, path: &str) -> anyhow::Result<Bytes> {
    let stream = TcpStream::connect(server).await.with_context(|| {
        format!("cannot connect to {server}: expected the address of a running server's REST interface")
    })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, server)
        .body(Full::<Bytes>::default())?;
    let response = sender.send_request(request).await.with_context(|| format!("{server} did not answer"))?;
    let status = response.status();
    let read = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
    let body = read.map_err(|error| anyhow::anyhow!("{server}: {error}"))?.to_bytes();
    driver.abort();
    if status != StatusCode::OK {
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(refused) => bail!("{}", refused.error),
            Err(_) => bail!("{server} answered {status}"),
        }
    }
    Ok(body)
}
