//! Resets HTTP/2 streams whose client grants no flow-control window while the connection itself works.
//!
//! hyper waits for window without a limit and does not poll the body while it waits. Two parts work around that. [`Paced`]
//! sends large answers in steps and ends only when the last step is written. [`Watched`] drops the task that sends an
//! answer, which resets its stream, when no step is written within the timeout. A small answer is one step; its end is
//! not awaited, because it holds little memory.

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

use super::write_timeout::{STEP_BYTES, WriteTimeout};
use crate::budget::SMALL_ANSWER;

tokio::task_local! {
    /// Progress of the answer that the current task sends.
    static PROGRESS: Progress;
}

#[derive(Default)]
struct Progress {
    /// Whether bytes wait for the client.
    sending: Cell<bool>,
    /// Changes whenever the client read some.
    step: Cell<u32>,
}

impl Progress {
    fn stepped() {
        // Outside a watched task there is no progress to record.
        let _ = PROGRESS.try_with(|progress| {
            progress.sending.set(true);
            progress.step.set(progress.step.get().wrapping_add(1));
        });
    }

    fn waiting_for_the_answer() {
        let _ = PROGRESS.try_with(|progress| progress.sending.set(false));
    }
}

/// Runs the tasks of HTTP/2 streams with a write timeout each.
#[derive(Clone)]
pub struct Watching(pub WriteTimeout);

impl<F> Executor<F> for Watching
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let watched = Watched { stream, timeout: self.0.clone(), timer: None, seen: 0 };
        tokio::spawn(PROGRESS.scope(Progress::default(), watched));
    }
}

pin_project! {
    /// The task of a stream. It ends early when the client does not read.
    struct Watched<F> {
        #[pin]
        stream: F,
        timeout: WriteTimeout,
        // Runs while bytes wait for the client.
        timer: Option<Pin<Box<Sleep>>>,
        // The step at which the timer was started.
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
            *this.timer = None;
            *this.seen = step;
        }
        if !sending {
            return Poll::Pending;
        }
        ready!(this.timer.get_or_insert_with(|| this.timeout.timer()).as_mut().poll(context));
        this.timeout.expire("stream");
        Poll::Ready(())
    }
}

/// A body that is polled again only after the transport has written the previous frame.
pub struct Paced<B> {
    body: B,
    /// The unsent rest of a large frame.
    rest: Bytes,
    /// Steps of large frames that are not written yet. None before the first large frame.
    unwritten: Option<Arc<Unwritten>>,
    /// Number of unwritten steps at the last poll.
    seen: usize,
}

#[derive(Default)]
struct Unwritten(Mutex<Steps>);

#[derive(Default)]
struct Steps {
    count: usize,
    waiting: Option<Waker>,
}

impl Unwritten {
    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that count as unwritten until the transport has written and dropped them.
struct Step {
    bytes: Bytes,
    unwritten: Arc<Unwritten>,
}

impl AsRef<[u8]> for Step {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let mut steps = self.unwritten.lock();
        steps.count = steps.count.saturating_sub(1);
        let waiting = steps.waiting.take();
        drop(steps);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl<B> Paced<B> {
    /// Created when the answer is ready to be sent.
    pub fn new(body: B) -> Self {
        Progress::stepped();
        Self { body, rest: Bytes::new(), unwritten: None, seen: 0 }
    }

    /// The next step of a large frame.
    fn next_step(&mut self) -> Bytes {
        let bytes = self.rest.split_to(self.rest.len().min(STEP_BYTES));
        let unwritten = Arc::clone(self.unwritten.get_or_insert_default());
        let mut steps = unwritten.lock();
        steps.count = steps.count.saturating_add(1);
        drop(steps);
        Bytes::from_owner(Step { bytes, unwritten })
    }

    /// Ready when every step is written.
    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(unwritten) = &self.unwritten else { return Poll::Ready(()) };
        let mut steps = unwritten.lock();
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
            ready!(this.poll_written(context));
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
        self.unwritten.is_none() && self.body.is_end_stream()
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
