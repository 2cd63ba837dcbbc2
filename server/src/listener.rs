//! The accept loop and the connection limits that HTTP, gRPC and metrics share.
//!
//! The loop uses hyper directly, because a framework's loop does not enforce these limits: connections are counted,
//! slow headers time out, headers are bounded before they are parsed, and a drain lets requests in flight finish.

mod closing;
mod handshake;
mod pace;
mod services;
mod write_timeout;

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use identity::Tls;
use metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::tenant::Peer;
use handshake::Secured;
use pace::Watching;
pub use services::service;
use services::{WithCaller, paced};
use write_timeout::{TimeoutStream, WriteTimeout};

/// First bytes of the HTTP/2 connection preface. No HTTP/1 method starts with them.
const HTTP2_PREFACE: &[u8; 3] = b"PRI";
/// The answer, before any parsing, to a connection over the limit.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-type: application/json\r\n\
    x-tessera-reason: queue_full\r\nconnection: close\r\ncontent-length: 52\r\n\r\n\
    {\"error\":\"the limit of open connections is reached\"}";
/// How long open connections are still read after the listener is closed, for requests that were in transit.
const LAST_REQUESTS: Duration = Duration::from_millis(250);
/// Wait before accepting again when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Which protocols a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1, and HTTP/2 with prior knowledge.
    Http,
    /// HTTP/2 only, as gRPC needs.
    Http2,
}

/// Bounds on connections, from `[limits]`.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Open connections a listener.
    pub connections: usize,
    /// Request line and headers, in bytes.
    pub header_bytes: u32,
    /// Until the headers of a request have arrived, a TLS handshake and idle time of a kept connection included.
    pub header_timeout: Duration,
    /// In which a client must take the next 256 KiB of an answer, or what is left of it.
    pub answer_timeout: Duration,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams: u32,
}

/// Largest read of a body at once; the header limit is separate.
const READ_BUFFER: usize = 64 * 1024;
/// HTTP/2 flow control: bytes a stream may send ahead of being read.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// HTTP/2 flow control: bytes a connection may send ahead of being read.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// HTTP/2: the next step of a large answer is made when this much of the last one is left to be written. Above it the
/// task that sends the answer sleeps; below it every frame written wakes it.
const SEND_BUFFER: usize = 32 * 1024;
/// A silent peer is probed after this time.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long it has to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    slow_readers: Counter,
    tells_peers: bool,
    tls: Option<Arc<Tls>>,
    /// Address of the listener, with the actual port if port 0 was configured.
    pub address: SocketAddr,
}

impl Listener {
    /// Binds an address; the error names it.
    pub async fn bind(option: &'static str, address: SocketAddr) -> anyhow::Result<Self> {
        use anyhow::Context as _;
        let socket = TcpListener::bind(address).await.with_context(|| {
            format!(
                "{option}: cannot listen on {address}; choose another port, or stop the program that uses it"
            )
        })?;
        let address = socket.local_addr()?;
        Ok(Self { socket, slow_readers: Counter::noop(), tells_peers: false, tls: None, address })
    }

    /// Counts the connections and streams that are closed because their client does not read.
    #[must_use]
    pub fn counting_slow_readers(self, slow_readers: Counter) -> Self {
        Self { slow_readers, ..self }
    }

    /// Adds the peer of the connection to each request, as an extension of type [`Peer`].
    #[must_use]
    pub fn telling_peers(self, tells_peers: bool) -> Self {
        Self { tells_peers, ..self }
    }

    /// Speaks TLS, if there are certificates.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<Tls>>) -> Self {
        Self { tls, ..self }
    }

    /// Serves until `stop`, then lets requests in flight finish; returns when the last connection is closed.
    ///
    /// Every client that was connected at `stop` gets an answer. Connections that the kernel has accepted are taken
    /// before the listener is closed, and open connections are read a little longer, while the service answers that it
    /// is draining. Closing a connection while a request is in transit would lose that request.
    pub async fn serve<S, B>(
        self,
        protocols: Protocols,
        limits: ConnectionLimits,
        service: S,
        stop: CancellationToken,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let connections = Connections {
            address: self.address,
            protocols,
            tells_peers: self.tells_peers,
            tls: self.tls,
            limits,
            write_timeout: WriteTimeout::new(limits.answer_timeout, self.slow_readers),
            permits: Arc::new(Semaphore::new(limits.connections)),
            graceful: GracefulShutdown::new(),
            close: CancellationToken::new(),
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => connections.take(stream, peer, service.clone()),
                Err(error) => {
                    tracing::warn!(%error, address = %self.address, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        let take = |stream, peer| connections.take(stream, peer, service.clone());
        closing::close(self.socket, limits.connections, take).await;
        let _ = tokio::time::timeout(LAST_REQUESTS, connections.all_closed()).await;
        connections.close.cancel();
        connections.graceful.shutdown().await;
    }
}

/// The connections of a listener.
struct Connections {
    address: SocketAddr,
    protocols: Protocols,
    tells_peers: bool,
    tls: Option<Arc<Tls>>,
    limits: ConnectionLimits,
    write_timeout: WriteTimeout,
    /// One permit for each connection that may be open.
    permits: Arc<Semaphore>,
    graceful: GracefulShutdown,
    /// Closes connections on which the client never sent a byte.
    close: CancellationToken,
}

impl Connections {
    /// Serves a connection in its own task, or rejects it at the limit.
    fn take<S, B>(&self, stream: TcpStream, peer: SocketAddr, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            tracing::debug!(address = %self.address, "connection refused: the limit is reached");
            if self.protocols == Protocols::Http && self.tls.is_none() {
                // Best effort: the send buffer of a new socket is empty.
                let _ = stream.try_write(FULL);
            }
            return;
        };
        let peer = self.tells_peers.then_some(Peer(peer.ip()));
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            service.call(request)
        });
        let (watcher, close) = (self.graceful.watcher(), self.close.clone());
        let served =
            Served { protocols: self.protocols, limits: self.limits, timeout: self.write_timeout.clone() };
        let tls = self.tls.clone();
        tokio::spawn(async move {
            let _permit = permit;
            match tls {
                None => served.plain(stream, service, watcher, close).await,
                Some(tls) => Box::pin(served.secured(&tls, stream, service, watcher, close)).await,
            }
        });
    }

    /// Returns when no connection is open.
    async fn all_closed(&self) {
        let all = u32::try_from(self.limits.connections).unwrap_or(u32::MAX);
        let _ = self.permits.acquire_many(all).await;
    }
}

/// How a connection is served.
struct Served {
    protocols: Protocols,
    limits: ConnectionLimits,
    timeout: WriteTimeout,
}

impl Served {
    async fn plain<S, B>(self, stream: TcpStream, service: S, watcher: Watcher, close: CancellationToken)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let opened = tokio::select! {
            biased;
            opened = speaks_http2(&stream, self.limits.header_timeout) => opened,
            () = close.cancelled() => None,
        };
        let Some(speaks_http2) = opened else { return };
        if let Some(stream) = self.prepared(stream) {
            self.requests(stream, speaks_http2, service, watcher).await;
        }
    }

    async fn secured<S, B>(
        self,
        tls: &Tls,
        stream: TcpStream,
        service: S,
        watcher: Watcher,
        close: CancellationToken,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Some(stream) = self.prepared(stream) else { return };
        let accepted = tokio::select! {
            biased;
            accepted = handshake::accept(tls, self.protocols, stream, self.limits.header_timeout) => accepted,
            () = close.cancelled() => None,
        };
        let Some(Secured { stream, speaks_http2, caller }) = accepted else { return };
        self.requests(stream, speaks_http2, WithCaller { service, caller }, watcher).await;
    }

    fn prepared(&self, stream: TcpStream) -> Option<TimeoutStream> {
        // Nagle's algorithm would delay every small answer.
        stream.set_nodelay(true).ok()?;
        TimeoutStream::new(stream, self.timeout.clone()).ok()
    }

    /// Answers the requests of a connection until it ends.
    async fn requests<I, S, B>(self, stream: I, speaks_http2: bool, service: S, watcher: Watcher)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let io = TokioIo::new(stream);
        match (speaks_http2, self.protocols) {
            (true, _) => {
                let connection = http2(self.limits, self.timeout).serve_connection(io, paced(service));
                report(watcher.watch(connection).await);
            }
            (false, Protocols::Http) => {
                report(watcher.watch(http1(self.limits).serve_connection(io, service)).await);
            }
            (false, Protocols::Http2) => {
                tracing::debug!("connection closed: this port speaks HTTP/2 (gRPC) only");
            }
        }
    }
}

fn report(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(error = %error, "connection ended early");
    }
}

/// Peeks at the first bytes. `None` if nothing arrived in time or the peer disconnected. A preface that arrives in
/// pieces of one or two bytes is taken for HTTP/1, which rejects it.
async fn speaks_http2(stream: &TcpStream, limit: Duration) -> Option<bool> {
    let mut first = [0_u8; HTTP2_PREFACE.len()];
    let seen = tokio::time::timeout(limit, stream.peek(&mut first)).await.ok()?.ok()?;
    (seen > 0).then_some(first == *HTTP2_PREFACE)
}

fn http1(limits: ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_header_size(usize::try_from(limits.header_bytes).unwrap_or(READ_BUFFER).min(READ_BUFFER))
        .max_buf_size(READ_BUFFER);
    builder
}

fn http2(limits: ConnectionLimits, timeout: WriteTimeout) -> http2::Builder<Watching> {
    let mut builder = http2::Builder::new(Watching(timeout));
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(limits.header_bytes)
        .max_concurrent_streams(limits.streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests;
