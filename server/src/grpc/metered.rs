//! Request bodies that count against the budget for bodies while they arrive.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tonic::Status;

use crate::http::body::Reservation;

/// A body, and what it has taken from the budget. `None`: not counted (a stream of messages, whose number in
/// flight is bounded instead).
pub struct Metered<B> {
    body: B,
    reservation: Option<Reservation>,
}

impl<B> Metered<B> {
    /// Counts what `body` delivers.
    pub fn new(body: B, reservation: Option<Reservation>) -> Self {
        Self { body, reservation }
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
        if let (Poll::Ready(Some(Ok(frame))), Some(reservation)) = (&polled, &mut this.reservation)
            && let Some(data) = frame.data_ref()
            && let Err(refusal) = reservation.grow(reservation.bytes().saturating_add(data.len()))
        {
            return Poll::Ready(Some(Err(Status::unavailable(refusal.message).into())));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
