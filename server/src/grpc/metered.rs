//! Request bodies of unary calls: counted against the budget for bodies while they arrive, and bounded in time.

use std::error::Error;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::Status;

use crate::budget::Reservation;

/// A body and its bounds. `None`: it has none (a stream of messages, whose number in flight is bounded instead).
pub struct Metered<B> {
    body: B,
    bounds: Option<Bounds>,
}

/// What a body may take.
pub struct Bounds {
    reservation: Reservation,
    timeout: Duration,
    /// Set once there is something to wait for: a body that came with its headers costs no timer.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Bounds {
    /// What arrives is added to the reservation, and all of it must have arrived within `timeout`.
    pub fn new(reservation: Reservation, timeout: Duration) -> Self {
        Self { reservation, timeout, alarm: None }
    }

    fn arrived(&mut self, bytes: usize) -> Result<(), Status> {
        let total = self.reservation.bytes().saturating_add(bytes);
        self.reservation.grow(total).map_err(|refusal| Status::unavailable(refusal.message))
    }

    /// Ready when the time is up.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        let timeout = self.timeout;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        alarm.as_mut().poll(context).map(|()| {
            Status::deadline_exceeded(format!("request body: not complete after {} s", timeout.as_secs_f64()))
        })
    }
}

impl<B> Metered<B> {
    /// A body within its bounds.
    pub fn new(body: B, bounds: Option<Bounds>) -> Self {
        Self { body, bounds }
    }
}

impl<B> Body for Metered<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context).map_err(Into::into);
        let Some(bounds) = &mut this.bounds else { return polled };
        match polled {
            Poll::Pending => bounds.poll_late(context).map(|late| Some(Err(late.into()))),
            Poll::Ready(Some(Ok(frame))) => {
                let counted = bounds.arrived(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(counted.map(|()| frame).map_err(Into::into)))
            }
            Poll::Ready(ended) => Poll::Ready(ended),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
