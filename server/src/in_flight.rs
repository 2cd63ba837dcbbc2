//! Requests that are being answered: a drain waits for them.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use metrics::Gauge;
use tokio::sync::Notify;

/// Counts requests that are being answered.
pub struct InFlight {
    count: AtomicUsize,
    idle: Notify,
    gauge: Gauge,
}

/// Counts a request until dropped. `C` is a reference to the count, or shares it.
pub struct Entered<C: Deref<Target = InFlight>>(C);

impl InFlight {
    /// No request; `gauge` shows their number.
    pub fn new(gauge: Gauge) -> Self {
        Self { count: AtomicUsize::new(0), idle: Notify::new(), gauge }
    }

    /// Requests now.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns once no request is in flight.
    pub async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // Registered before the check, so that a request ending in between is not missed.
            idle.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl<C: Deref<Target = InFlight>> Entered<C> {
    /// One more request.
    pub fn new(counted: C) -> Self {
        counted.count.fetch_add(1, Ordering::SeqCst);
        counted.gauge.increment(1.0);
        Self(counted)
    }

    /// A body during which the request is in flight.
    pub fn during<B>(self, body: B) -> During<B, C> {
        During { body, _entered: self }
    }
}

impl<C: Deref<Target = InFlight>> Drop for Entered<C> {
    fn drop(&mut self) {
        self.0.gauge.decrement(1.0);
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// The body of an answer, whose request is in flight until it is dropped.
pub struct During<B, C: Deref<Target = InFlight>> {
    body: B,
    _entered: Entered<C>,
}

impl<B: Body + Unpin, C: Deref<Target = InFlight> + Unpin> Body for During<B, C> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
