//! Memory of bodies: of requests while they are processed, and of answers until the client has read them.
//!
//! Both share one budget (`limits.bodies`). A body over the budget is rejected immediately, because a waiting request or
//! answer would hold its memory while it waits.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use metrics::Gauge;
use node::reason::{Reason, Refusal};

use crate::trace::SendEnd;

/// Answers up to this size are not counted: they fit into the socket's buffer.
pub const SMALL_ANSWER: usize = 16 * 1024;

/// Bytes of bodies that may be held at once.
#[derive(Clone)]
pub struct BodyBudget {
    limit: usize,
    used: Arc<AtomicUsize>,
    gauge: Gauge,
}

/// Bytes taken from the budget, returned on drop.
pub struct Reservation {
    budget: BodyBudget,
    bytes: usize,
    /// Records when the answer was taken.
    send_end: Option<SendEnd>,
}

impl BodyBudget {
    /// A budget of `limit` bytes; `gauge` shows what is used.
    pub fn new(limit: usize, gauge: Gauge) -> Self {
        Self { limit, used: Arc::new(AtomicUsize::new(0)), gauge }
    }

    /// An empty reservation.
    pub fn reserve(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0, send_end: None }
    }

    /// A reservation for an answer, none for a small one. Fails if the budget is exhausted.
    pub fn hold_answer(&self, bytes: usize) -> Result<Option<Reservation>, Refusal> {
        if bytes <= SMALL_ANSWER { Ok(None) } else { self.reserve().into_answer(bytes) }
    }

    /// A part of an answer, which counts until it is dropped. Fails if the budget is exhausted.
    pub fn hold(&self, bytes: Bytes) -> Result<Bytes, Refusal> {
        Ok(match self.hold_answer(bytes.len())? {
            None => bytes,
            Some(held) => Bytes::from_owner(HeldBytes { bytes, _reservation: Arc::new(held) }),
        })
    }

    /// Bytes taken now.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Reservation {
    /// Records in a trace when the answer was taken.
    pub fn traced(mut self, send_end: SendEnd) -> Self {
        self.send_end = Some(send_end);
        self
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows the reservation to `bytes` bytes. Fails if the budget is exhausted.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let budget = &self.budget;
        let before = budget.used.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > budget.limit {
            budget.used.fetch_sub(more, Ordering::Relaxed);
            return Err(Refusal::new(
                Reason::QueueFull,
                format!(
                    "the {} bytes for bodies of requests and answers (`limits.bodies`) are in use",
                    budget.limit
                ),
            ));
        }
        self.bytes += more;
        budget.gauge.increment(more as f64);
        Ok(())
    }

    /// Converts the reservation of a request, or of an earlier form of its answer, into one for an answer of `bytes` bytes; none
    /// for a small answer. Fails if it must grow and the budget is exhausted.
    pub fn into_answer(mut self, bytes: usize) -> Result<Option<Self>, Refusal> {
        if bytes <= SMALL_ANSWER {
            return Ok(None);
        }
        self.grow(bytes)?;
        self.give_back(self.bytes - bytes);
        Ok(Some(self))
    }

    /// Adds another reservation of the same budget.
    fn absorb(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    fn give_back(&mut self, bytes: usize) {
        if bytes > 0 {
            self.bytes -= bytes;
            self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
            self.budget.gauge.decrement(bytes as f64);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// The reservation for the next frame of a [`Held`] body. The code that makes the frame, such as an encoder inside the body,
/// puts it here.
#[derive(Clone, Default)]
pub struct Holding(Arc<Mutex<Option<Reservation>>>);

impl Holding {
    /// The reservation of a complete answer.
    pub fn of(reservation: Reservation) -> Self {
        Self(Arc::new(Mutex::new(Some(reservation))))
    }

    /// Adds the reservation of another message in the next frame.
    pub fn add(&self, reservation: Reservation) {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *next {
            Some(next) => next.absorb(reservation),
            None => *next = Some(reservation),
        }
    }

    fn take(&self) -> Option<Reservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A body whose reservation lasts until its last byte is written. The transport drops bodies before it has written their
/// frames, so each frame holds the reservation.
pub struct Held<B> {
    body: B,
    next: Holding,
    /// The reservation of the latest frames.
    current: Option<Arc<Reservation>>,
    /// The largest reservation so far: an encoder keeps a buffer of that size for its next message.
    largest: Option<Arc<Reservation>>,
}

/// Bytes that count until they are dropped.
struct HeldBytes {
    bytes: Bytes,
    _reservation: Arc<Reservation>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B> Held<B> {
    /// A body whose frames hold the latest reservation of `next`.
    pub fn new(body: B, next: Holding) -> Self {
        Self { body, next, current: None, largest: None }
    }

    fn hold(&mut self, bytes: Bytes) -> Bytes {
        if let Some(reservation) = self.next.take() {
            let reservation = Arc::new(reservation);
            if self.largest.as_ref().is_none_or(|largest| largest.bytes < reservation.bytes) {
                self.largest = Some(Arc::clone(&reservation));
            }
            self.current = Some(reservation);
        }
        match &self.current {
            Some(reservation) if !bytes.is_empty() => {
                Bytes::from_owner(HeldBytes { bytes, _reservation: Arc::clone(reservation) })
            }
            _ => bytes,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Held<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| this.hold(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::convert::Infallible;

    const LARGE: usize = SMALL_ANSWER + 1;

    fn budget() -> BodyBudget {
        BodyBudget::new(4 * LARGE, Gauge::noop())
    }

    #[test]
    fn small_answers_are_not_counted_and_a_request_hands_on_what_it_held() {
        let budget = budget();
        assert!(budget.hold_answer(SMALL_ANSWER).unwrap().is_none());
        let mut request = budget.reserve();
        request.grow(4 * LARGE).unwrap();
        assert_eq!(budget.hold_answer(LARGE).err().unwrap().reason, Reason::QueueFull);
        let answer = request.into_answer(2 * LARGE).unwrap().unwrap();
        assert_eq!(budget.used(), 2 * LARGE);
        assert!(answer.into_answer(SMALL_ANSWER).unwrap().is_none());
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_part_of_an_answer_counts_until_its_last_piece_is_dropped() {
        let budget = budget();
        let part = budget.hold(Bytes::from(vec![0; 3 * LARGE])).unwrap();
        assert_eq!(budget.hold(Bytes::from(vec![0; 2 * LARGE])).err().unwrap().reason, Reason::QueueFull);
        let piece = part.slice(..1);
        drop(part);
        assert_eq!(budget.used(), 3 * LARGE);
        drop(piece);
        assert_eq!(budget.used(), 0);
        assert!(budget.hold(Bytes::from(vec![0; SMALL_ANSWER])).is_ok() && budget.used() == 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_answer_counts_until_its_last_bytes_are_dropped() {
        let budget = budget();
        let holding = Holding::of(budget.hold_answer(LARGE).unwrap().unwrap());
        let mut body = Held::new(Full::new(Bytes::from(vec![0; LARGE])), holding);
        let bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(body);
        let piece = bytes.slice(..1);
        drop(bytes);
        assert_eq!(budget.used(), LARGE);
        drop(piece);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_stream_of_answers_counts_those_in_its_frames_and_the_largest_one() {
        let (budget, holding) = (budget(), Holding::default());
        let frames = [1, 2, 3].map(|byte| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![byte]))));
        let mut body = Held::new(StreamBody::new(tokio_stream::iter(frames)), holding.clone());
        let frame = async |body: &mut Held<_>| BodyExt::frame(body).await.unwrap().unwrap();
        let uncounted = frame(&mut body).await;
        assert_eq!(budget.used(), 0);
        drop(uncounted);
        for _ in 0..2 {
            holding.add(budget.hold_answer(LARGE).unwrap().unwrap());
        }
        drop(frame(&mut body).await);
        assert_eq!(budget.used(), 2 * LARGE, "the encoder's buffer");
        holding.add(budget.hold_answer(LARGE).unwrap().unwrap());
        let last = frame(&mut body).await;
        assert_eq!(budget.used(), 3 * LARGE);
        drop(body);
        assert_eq!(budget.used(), LARGE);
        drop(last);
        assert_eq!(budget.used(), 0);
    }
}
