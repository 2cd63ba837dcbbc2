//! HTTP/2, for REST and gRPC: many requests on a connection, another when the server takes no more on it.

use std::cell::{Cell, RefCell};
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::Notify;

use super::{Body, Dialer, Failure, Reply, Watch, Wire};

/// Bytes of answers that may be under way on a stream before they are read: all of most answers.
const STREAM_WINDOW: u32 = 4 << 20;
/// The same for a connection.
const CONNECTION_WINDOW: u32 = 256 << 20;
/// Streams that a connection takes before the server has said how many: a number that no server can say.
const STREAMS_UNKNOWN: usize = usize::MAX - 1;
/// Connections that a request may meet which are about to end.
const TRIES: u32 = 5;

#[derive(Debug)]
pub(crate) struct Pool {
    dialer: Dialer,
    limit: usize,
    connections: RefCell<Vec<Rc<Connection>>>,
    /// Connections that are being opened and will have free streams.
    opening: Cell<usize>,
    /// A stream ended, a connection opened or ended.
    changed: Notify,
    opened: Cell<u64>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Bytes>,
    in_flight: Cell<usize>,
    broken: Cell<bool>,
}

impl Connection {
    fn has_free_stream(&self) -> bool {
        !self.broken.get() && self.in_flight.get() < self.sender.current_max_send_streams()
    }
}

/// A stream of a connection, counted while it lives.
struct Slot<'a> {
    pool: &'a Pool,
    connection: Rc<Connection>,
}

impl<'a> Slot<'a> {
    fn new(pool: &'a Pool, connection: Rc<Connection>) -> Self {
        connection.in_flight.set(connection.in_flight.get() + 1);
        Self { pool, connection }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.connection.in_flight.set(self.connection.in_flight.get().saturating_sub(1));
        self.pool.changed.notify_one();
    }
}

/// Counts a connection that is being opened, even if its opener is cancelled.
struct Opening<'a>(&'a Pool);

impl<'a> Opening<'a> {
    fn new(pool: &'a Pool) -> Self {
        pool.opening.set(pool.opening.get() + 1);
        Self(pool)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get().saturating_sub(1));
        self.0.changed.notify_waiters();
    }
}

impl Pool {
    pub fn new(dialer: Dialer, limit: u32) -> Self {
        Self {
            dialer,
            limit: limit.max(1) as usize,
            connections: RefCell::default(),
            opening: Cell::new(0),
            changed: Notify::new(),
            opened: Cell::new(0),
        }
    }

    pub fn opened(&self) -> u64 {
        self.opened.get()
    }

    pub async fn exchange(&self, wire: &Wire, watch: &impl Watch) -> Result<Reply, Failure> {
        let mut tries = 1;
        loop {
            let slot = self.slot(watch).await?;
            let Broke { error, failure, unseen } =
                match exchange(slot.connection.sender.clone(), wire, watch).await {
                    Ok(reply) => return Ok(reply),
                    Err(broke) => broke,
                };
            if error.is_io() || error.is_go_away() {
                slot.connection.broken.set(true);
            }
            if !unseen || tries == TRIES {
                return Err(failure);
            }
            tries += 1;
        }
    }

    /// A place for a stream: on the connection with the fewest, on a new one if all are full, else later.
    async fn slot(&self, watch: &impl Watch) -> Result<Slot<'_>, Failure> {
        let mut told = false;
        loop {
            let least = {
                let mut connections = self.connections.borrow_mut();
                connections.retain(|connection| !connection.broken.get());
                let available = connections.iter().filter(|connection| connection.has_free_stream());
                available.min_by_key(|connection| connection.in_flight.get()).cloned()
            };
            if let Some(connection) = least {
                return Ok(Slot::new(self, connection));
            }
            let existing = self.connections.borrow().len();
            if self.opening.get() == 0 && existing < self.limit {
                // Rare, and large: not a part of every request.
                let connection = Box::pin(self.open()).await?;
                return Ok(Slot::new(self, connection));
            }
            if !told && self.opening.get() == 0 {
                watch.held();
                told = true;
            }
            self.changed.notified().await;
        }
    }

    async fn open(&self) -> Result<Rc<Connection>, Failure> {
        let _opening = Opening::new(self);
        let stream = self.dialer.connect().await?;
        self.opened.set(self.opened.get() + 1);
        let (sender, mut connection) = h2::client::Builder::new()
            .initial_max_send_streams(STREAMS_UNKNOWN)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream)
            .await
            .map_err(|error| Failure::Connect(error.to_string()))?;
        // The server's first frame says how many streams it accepts; more would be rejected.
        poll_fn(|context| match Pin::new(&mut connection).poll(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(Failure::Connect(error.to_string()))),
            Poll::Ready(Ok(())) => Poll::Ready(Err(Failure::Connect("closed at once".to_owned()))),
            Poll::Pending if sender.current_max_send_streams() == STREAMS_UNKNOWN => Poll::Pending,
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await?;
        let made = Rc::new(Connection { sender, in_flight: Cell::new(0), broken: Cell::new(false) });
        self.connections.borrow_mut().push(Rc::clone(&made));
        let driven = Rc::clone(&made);
        tokio::task::spawn_local(async move {
            // How a connection ends is told to the requests that were on it.
            drop(connection.await);
            driven.broken.set(true);
        });
        Ok(made)
    }
}

struct Broke {
    error: h2::Error,
    failure: Failure,
    /// Whether it is certain that the server has not processed the request.
    unseen: bool,
}

impl Broke {
    /// Before anything of the request was sent.
    fn unsent(error: h2::Error) -> Self {
        let is_over = error.is_io() || error.is_go_away();
        Self { unseen: is_over, ..Self::from(error) }
    }
}

impl From<h2::Error> for Broke {
    fn from(error: h2::Error) -> Self {
        // A polite end of the connection; streams that the server still answers do not see it.
        let unseen = error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
        Self { failure: Failure::Broken(error.to_string()), unseen, error }
    }
}

async fn exchange(sender: SendRequest<Bytes>, wire: &Wire, watch: &impl Watch) -> Result<Reply, Broke> {
    let mut sender = sender.ready().await.map_err(Broke::unsent)?;
    let request = http::Request::from_parts(wire.parts.clone(), ());
    watch.sent();
    let (response, mut stream) = sender.send_request(request, wire.body.is_empty()).map_err(Broke::unsent)?;
    if !wire.body.is_empty() {
        // Shared with every other request of this kind, so waiting for the window costs no memory.
        stream.send_data(wire.body.clone(), true)?;
    }
    let (parts, mut body) = response.await?.into_parts();
    let mut gathered = Body::default();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        let cancelled = h2::Error::from(h2::Reason::CANCEL);
        gathered.push(part).map_err(|failure| Broke { error: cancelled, failure, unseen: false })?;
    }
    let mut headers = parts.headers;
    if let Some(trailers) = body.trailers().await? {
        headers.extend(trailers);
    }
    Ok(Reply { status: parts.status, headers, body: gathered.finish() })
}
