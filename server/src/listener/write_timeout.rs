//! Closes the connection of a client that does not read its answer.
//!
//! On the hot path: a write that the kernel takes at once costs one comparison, and no timer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Bytes that a client must read within the timeout, or the rest of the answer if that is less. This is a lower bound
/// on the rate: a client cannot hold an answer by reading single bytes.
pub const STEP_BYTES: usize = 256 * 1024;
/// Unsent bytes that the kernel buffers for a connection. A small buffer makes the socket writable again soon after the
/// client read some, and costs little for a client that does not read. Bytes on the wire are not limited.
const UNSENT_BYTES: u32 = 256 * 1024;

/// How long a client may take to read [`STEP_BYTES`].
#[derive(Clone)]
pub struct WriteTimeout {
    limit: Duration,
    /// Counts connections and streams that were closed.
    expired: Counter,
}

impl WriteTimeout {
    /// Clients must read [`STEP_BYTES`] within `limit`; `expired` counts those that do not.
    pub fn new(limit: Duration, expired: Counter) -> Self {
        Self { limit, expired }
    }

    /// A timer that expires when the client has read nothing from now on.
    pub fn timer(&self) -> Pin<Box<Sleep>> {
        Box::pin(tokio::time::sleep(self.limit))
    }

    /// Counts and logs that `what` (a connection or a stream) is closed.
    pub fn expire(&self, what: &'static str) {
        self.expired.increment(1);
        tracing::debug!(
            reason = "slow_reader",
            "{what} closed: its client did not read for {} s",
            self.limit.as_secs_f64()
        );
    }
}

/// A connection that fails when its client stops reading. An idle connection, with nothing to write, has no timeout.
pub struct TimeoutStream {
    stream: TcpStream,
    timeout: WriteTimeout,
    /// Runs while the kernel does not accept all bytes.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes written since the timer started.
    taken: usize,
}

impl TimeoutStream {
    /// Wraps an accepted connection.
    pub fn new(stream: TcpStream, timeout: WriteTimeout) -> io::Result<Self> {
        socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
        Ok(Self { stream, timeout, timer: None, taken: 0 })
    }

    fn watch(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => {
                let timer = self.timer.get_or_insert_with(|| {
                    self.taken = 0;
                    self.timeout.timer()
                });
                ready!(timer.as_mut().poll(context));
                self.timeout.expire("connection");
                // Reset the connection. Otherwise the kernel would keep its buffer until the client reads it.
                self.stream.set_zero_linger()?;
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
            }
            Poll::Ready(Ok(bytes)) if self.timer.is_some() => {
                self.taken = self.taken.saturating_add(bytes);
                if self.taken >= STEP_BYTES {
                    self.timer = None;
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(_) => written,
        }
    }
}

impl AsyncRead for TimeoutStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl AsyncWrite for TimeoutStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when everything has been written.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.timer = None;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
