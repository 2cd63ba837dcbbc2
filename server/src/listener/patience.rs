//! Clients that do not read: how long an answer waits for them, and sockets that give them up.
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

/// What a client must take of an answer each time, or what is left of it. A floor on the rate, so that a byte now and
/// then does not hold an answer for ever.
pub const STEP_BYTES: usize = 256 * 1024;
/// Unsent bytes that the kernel takes: it then says early, after half of them, that the client has taken some,
/// and holds little for clients that do not read. What is on the wire is not limited.
const UNSENT_BYTES: u32 = 256 * 1024;

/// How long clients may leave their answers untaken.
#[derive(Clone)]
pub struct Patience {
    limit: Duration,
    /// Counts the clients that were given up.
    given_up: Counter,
}

impl Patience {
    /// Clients must take [`STEP_BYTES`] within `limit`.
    pub fn new(limit: Duration, given_up: Counter) -> Self {
        Self { limit, given_up }
    }

    /// The end of the patience with what is untaken now.
    pub fn alarm(&self) -> Pin<Box<Sleep>> {
        Box::pin(tokio::time::sleep(self.limit))
    }

    /// Counts and logs a client that is given up; `what` of its is closed.
    pub fn give_up(&self, what: &'static str) {
        self.given_up.increment(1);
        tracing::debug!(
            reason = "slow_reader",
            "{what} closed: its client did not read for {} s",
            self.limit.as_secs_f64()
        );
    }
}

/// A connection that ends when its client takes nothing of what is to be written; on an idle one that is nothing.
pub struct PatientStream {
    stream: TcpStream,
    patience: Patience,
    /// Set while the kernel does not take all that is to be written.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Bytes written since it was set.
    taken: usize,
}

impl PatientStream {
    /// Writes to this stream from now on.
    pub fn new(stream: TcpStream, patience: Patience) -> io::Result<Self> {
        socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
        Ok(Self { stream, patience, alarm: None, taken: 0 })
    }

    fn watch(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => {
                let alarm = self.alarm.get_or_insert_with(|| {
                    self.taken = 0;
                    self.patience.alarm()
                });
                ready!(alarm.as_mut().poll(context));
                self.patience.give_up("connection");
                // A reset: what the kernel holds for the client would else stay until the client takes it.
                self.stream.set_zero_linger()?;
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
            }
            Poll::Ready(Ok(bytes)) if self.alarm.is_some() => {
                self.taken = self.taken.saturating_add(bytes);
                if self.taken >= STEP_BYTES {
                    self.alarm = None;
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(_) => written,
        }
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl AsyncWrite for PatientStream {
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

    /// Called once all has been written.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.alarm = None;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
