//! HTTP/2 without TLS, for REST and gRPC.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::answer::{Answer, Asked, decide};
use super::{Act, Shared};

/// How a connection ends.
enum End {
    /// With a GOAWAY, once what is under way is answered.
    Polite,
    Abrupt,
}

pub async fn serve(stream: TcpStream, shared: Arc<Shared>) -> Result<(), h2::Error> {
    let mut builder = h2::server::Builder::new();
    if let Some(streams) = shared.streams {
        builder.max_concurrent_streams(streams);
    }
    let mut connection = builder.handshake::<_, Bytes>(stream).await?;
    let (tell, mut told) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(accepted) = accepted else { return Ok(()) };
                let (request, respond) = accepted?;
                let (shared, tell) = (Arc::clone(&shared), tell.clone());
                // A client may disconnect.
                tokio::task::spawn_local(async move { drop(answer(request, respond, &shared, &tell).await) });
            }
            Some(end) = told.recv() => match end {
                End::Polite => connection.graceful_shutdown(),
                End::Abrupt => return Ok(()),
            },
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: &Shared,
    tell: &mpsc::UnboundedSender<End>,
) -> Result<(), h2::Error> {
    let asked = read(request).await?;
    let (act, answer) = decide(shared, &asked);
    let mut size = usize::MAX;
    match act {
        Act::Right | Act::Response(_) | Act::Raw(_) => {}
        Act::Pieces(bytes) | Act::Chunks(bytes) => size = bytes,
        Act::Continued => {
            let informed = Response::builder().status(100).body(()).unwrap();
            respond.send_informational(informed)?;
        }
        Act::At(time) => tokio::time::sleep_until(time.into()).await,
        Act::Behind(gate) => gate.pass().await,
        Act::Last => drop(tell.send(End::Polite)),
        Act::Close => {
            let _ = tell.send(End::Abrupt);
            return std::future::pending().await;
        }
        Act::Truncated => {
            let mut body = respond.send_response(head(&answer), false)?;
            body.send_data(answer.body.slice(..answer.body.len() / 2), false)?;
            body.send_reset(Reason::INTERNAL_ERROR);
            return Ok(());
        }
        Act::Reset => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            return Ok(());
        }
        Act::Never => std::future::pending().await,
    }
    write(respond, answer, size).await
}

async fn write(mut respond: SendResponse<Bytes>, answer: Answer, size: usize) -> Result<(), h2::Error> {
    let (no_body, no_trailers) = (answer.body.is_empty(), answer.trailers.is_empty());
    let mut body = respond.send_response(head(&answer), no_body && no_trailers)?;
    let mut rest = answer.body;
    while !rest.is_empty() {
        let piece = rest.split_to(size.min(rest.len()));
        body.send_data(piece, rest.is_empty() && no_trailers)?;
        tokio::task::yield_now().await;
    }
    if !no_trailers {
        body.send_trailers(headers(&answer.trailers))?;
    }
    Ok(())
}

fn head(answer: &Answer) -> Response<()> {
    let mut head = Response::builder().status(answer.status).body(()).unwrap();
    *head.headers_mut() = headers(&answer.headers);
    head
}

fn headers(from: &[(&'static str, String)]) -> HeaderMap {
    let pairs = from.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
    pairs.collect()
}

async fn read(request: Request<RecvStream>) -> Result<Asked, h2::Error> {
    let (parts, mut body) = request.into_parts();
    let mut read = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        read.extend_from_slice(&data);
    }
    let length = |value: &HeaderValue| value.to_str().unwrap().parse().unwrap();
    Ok(Asked {
        path: parts.uri.path().to_owned(),
        json_length: parts.headers.get("inference-header-content-length").map(length),
        body: read.freeze(),
    })
}
