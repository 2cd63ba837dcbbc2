//! HTTP/2 streams whose client grants no window, while the connection itself is well.
//!
//! The framework waits for window without end and without asking the body, so two things work together here: large
//! answers go out in steps and end only once the last step is taken ([`Paced`]), and the task that sends an answer is
//! dropped, which resets its stream, when no step is taken for too long ([`Watched`]). A small answer is one step and
//! does not wait for its end: what it leaves behind is small too.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use super::patience::{Patience, STEP_BYTES};
use crate::budget::SMALL_ANSWER;

tokio::task_local! {
    /// How far the answer is that the current task sends.
    static PROGRESS: Progress;
}

#[derive(Default)]
struct Progress {
    /// There is something that the client can take.
    sending: Cell<bool>,
    /// Changes whenever it has taken some.
    step: Cell<u32>,
}

impl Progress {
    fn stepped() {
        // Without a task that is watched nobody asks.
        let _ = PROGRESS.try_with(|progress| {
            progress.sending.set(true);
            progress.step.set(progress.step.get().wrapping_add(1));
        });
    }

    fn waiting_for_the_answer() {
        let _ = PROGRESS.try_with(|progress| progress.sending.set(false));
    }
}

/// Runs the tasks of HTTP/2 streams, each watched.
#[derive(Clone)]
pub struct Watching(pub Patience);

impl<F> Executor<F> for Watching
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let watched = Watched { stream, patience: self.0.clone(), alarm: None, seen: 0 };
        tokio::spawn(PROGRESS.scope(Progress::default(), watched));
    }
}

pin_project! {
    /// The task of a stream: done early when the client takes nothing.
    struct Watched<F> {
        #[pin]
        stream: F,
        patience: Patience,
        // Set while the client lets the answer wait.
        alarm: Option<Pin<Box<Sleep>>>,
        // The step at which it was set.
        seen: u32,
    }
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(context).is_ready() {
            return Poll::Ready(());
        }
        let (sending, step) = PROGRESS.with(|progress| (progress.sending.get(), progress.step.get()));
        if !sending || step != *this.seen {
            *this.alarm = None;
            *this.seen = step;
        }
        if !sending {
            return Poll::Pending;
        }
        ready!(this.alarm.get_or_insert_with(|| this.patience.alarm()).as_mut().poll(context));
        this.patience.give_up("stream");
        Poll::Ready(())
    }
}

/// A body of which more is asked for only once the client has taken what it gave.
pub struct Paced<B> {
    body: B,
    /// What is left of a large frame.
    rest: Bytes,
    /// Steps of large frames that are on their way; none before the first of them.
    on_their_way: Option<Arc<OnTheirWay>>,
    /// How many there were when that was last looked at.
    seen: usize,
}

#[derive(Default)]
struct OnTheirWay(Mutex<Steps>);

#[derive(Default)]
struct Steps {
    count: usize,
    waiting: Option<Waker>,
}

impl OnTheirWay {
    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes on their way until they are dropped, which the transport does once it has written them.
struct Step {
    bytes: Bytes,
    on_its_way: Arc<OnTheirWay>,
}

impl AsRef<[u8]> for Step {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let mut steps = self.on_its_way.lock();
        steps.count = steps.count.saturating_sub(1);
        let waiting = steps.waiting.take();
        drop(steps);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl<B> Paced<B> {
    /// To be made when the answer is there.
    pub fn new(body: B) -> Self {
        Progress::stepped();
        Self { body, rest: Bytes::new(), on_their_way: None, seen: 0 }
    }

    /// The next step of a large frame.
    fn next_step(&mut self) -> Bytes {
        let bytes = self.rest.split_to(self.rest.len().min(STEP_BYTES));
        let on_its_way = Arc::clone(self.on_their_way.get_or_insert_default());
        let mut steps = on_its_way.lock();
        steps.count = steps.count.saturating_add(1);
        drop(steps);
        Bytes::from_owner(Step { bytes, on_its_way })
    }

    /// Ready when nothing is on its way.
    fn poll_taken(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(on_their_way) = &self.on_their_way else { return Poll::Ready(()) };
        let mut steps = on_their_way.lock();
        if steps.count == 0 {
            return Poll::Ready(());
        }
        if steps.count != self.seen {
            self.seen = steps.count;
            Progress::stepped();
        }
        steps.waiting = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            ready!(this.poll_taken(context));
            let polled = Pin::new(&mut this.body).poll_frame(context);
            if polled.is_pending() {
                Progress::waiting_for_the_answer();
                return Poll::Pending;
            }
            match polled {
                Poll::Ready(Some(Ok(frame)))
                    if frame.data_ref().is_some_and(|data| data.len() > SMALL_ANSWER) =>
                {
                    this.rest = frame.into_data().unwrap_or_default();
                }
                other => {
                    Progress::stepped();
                    return other;
                }
            }
        }
        Progress::stepped();
        Poll::Ready(Some(Ok(Frame::data(this.next_step()))))
    }

    fn is_end_stream(&self) -> bool {
        self.on_their_way.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, behind) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = behind.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(behind.lower().saturating_add(rest));
        hint
    }
}
