//! HTTP/1.1: as many connections as requests are in flight.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;

use super::{Body, Dialer, Failure, Reply, Watch, Wire};

type Sender = SendRequest<Full<Bytes>>;

#[derive(Debug)]
pub(crate) struct Pool {
    dialer: Dialer,
    /// One for each connection that may exist.
    permits: Semaphore,
    /// The last one used on top: it is the likeliest to be still open.
    idle: RefCell<Vec<Sender>>,
    opened: Cell<u64>,
}

impl Pool {
    pub fn new(dialer: Dialer, limit: u32) -> Self {
        let permits = Semaphore::new(limit.max(1) as usize);
        Self { dialer, permits, idle: RefCell::default(), opened: Cell::new(0) }
    }

    pub fn opened(&self) -> u64 {
        self.opened.get()
    }

    pub async fn exchange(&self, wire: &Wire, watch: &impl Watch) -> Result<Reply, Failure> {
        let _permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                watch.held();
                self.permits.acquire().await.map_err(|error| Failure::Broken(error.to_string()))?
            }
        };
        loop {
            let (mut sender, is_new) = match self.idle() {
                Some(sender) => (sender, false),
                // Rare, and large: not a part of every request.
                None => (Box::pin(self.open()).await?, true),
            };
            let request = http::Request::from_parts(wire.parts.clone(), Full::new(wire.body.clone()));
            watch.sent();
            match sender.send_request(request).await {
                Ok(response) => {
                    let reply = read(response).await?;
                    if !sender.is_closed() {
                        self.idle.borrow_mut().push(sender);
                    }
                    return Ok(reply);
                }
                // The server had closed a kept connection before anything was sent on it.
                Err(error) if error.is_canceled() && !is_new => {}
                Err(error) => return Err(Failure::Broken(told(&error))),
            }
        }
    }

    fn idle(&self) -> Option<Sender> {
        let mut idle = self.idle.borrow_mut();
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    async fn open(&self) -> Result<Sender, Failure> {
        let stream = self.dialer.connect().await?;
        self.opened.set(self.opened.get() + 1);
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Failure::Connect(told(&error)))?;
        // How a connection ends is told to the request that was on it.
        tokio::task::spawn_local(async { drop(connection.await) });
        Ok(sender)
    }
}

async fn read(response: http::Response<Incoming>) -> Result<Reply, Failure> {
    let (parts, mut body) = response.into_parts();
    let mut gathered = Body::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::Broken(told(&error)))?;
        if let Ok(part) = frame.into_data() {
            gathered.push(part)?;
        }
    }
    Ok(Reply { status: parts.status, headers: parts.headers, body: gathered.finish() })
}

/// The error with its cause: hyper's own messages are short.
fn told(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
