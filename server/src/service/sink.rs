//! Where a decoupled model puts the responses to a request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use models::engine::{ResponseSink, SinkClosed, StreamedResponse};
use node::reason::{Reason, Refusal};
use tokio::sync::{Notify, mpsc};

/// Responses of one request that may wait for its client. A model is told to wait at half of that.
pub const RESPONSES_WAITING_MAX: usize = 64;

/// Where a decoupled model puts its responses.
pub(super) struct Sink {
    responses: mpsc::Sender<StreamedResponse>,
    state: Arc<State>,
}

/// Tells the request's task when the last response was sent.
#[derive(Default)]
struct State {
    over: Notify,
    last: AtomicBool,
    overflowed: AtomicBool,
}

/// A request's part of its sink.
pub(super) struct SinkEnd(Arc<State>);

/// A sink, its request's part, and the responses.
pub(super) fn channel() -> ((Arc<Sink>, SinkEnd), mpsc::Receiver<StreamedResponse>) {
    let (responses, received) = mpsc::channel(RESPONSES_WAITING_MAX);
    let state = Arc::new(State::default());
    let sink = Sink { responses, state: Arc::clone(&state) };
    ((Arc::new(sink), SinkEnd(state)), received)
}

impl SinkEnd {
    /// Waits until the last response was sent.
    pub async fn over(&self, model: &str) -> Result<(), Refusal> {
        self.0.over.notified().await;
        if self.0.overflowed.load(Ordering::Acquire) {
            let message =
                format!("model `{model}`: more than {RESPONSES_WAITING_MAX} responses wait for the client");
            return Err(Refusal::new(Reason::SlowReader, message));
        }
        if !self.0.last.load(Ordering::Acquire) {
            let message = format!("model `{model}` ended the request without its last response");
            return Err(Refusal::new(Reason::EngineFailed, message));
        }
        Ok(())
    }
}

impl ResponseSink for Sink {
    fn send(&self, response: StreamedResponse) -> Result<(), SinkClosed> {
        if self.state.last.load(Ordering::Acquire) || self.state.overflowed.load(Ordering::Acquire) {
            return Err(SinkClosed);
        }
        let last = response.last;
        if let Err(error) = self.responses.try_send(response) {
            let full = matches!(error, mpsc::error::TrySendError::Full(_));
            self.state.overflowed.store(full, Ordering::Release);
            self.state.over.notify_one();
            return Err(SinkClosed);
        }
        if last {
            self.state.last.store(true, Ordering::Release);
            self.state.over.notify_one();
        }
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.state.over.notify_one();
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}
