//! The stream with which another picker asks this one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fleet_core::pick::PICKERS_MAX;
use futures_util::stream::{self, Stream};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::actor::Handle;
use crate::askers::Asker;
use crate::chooser::Asked;
use crate::pick_request;
use crate::proto::fleet::{Answers, Ask, Asks};

/// Messages that wait for a connection at most. One that takes fewer is broken.
const MESSAGES_MAX: usize = 1_024;
/// Time after the last message until a sign of life: while requests wait, and else.
const SIGNS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// Time for the first message of a stream.
const FIRST_MAX: Duration = Duration::from_secs(5);

/// The answers to a picker that asks.
pub type AnswerStream = Pin<Box<dyn Stream<Item = Result<Answers, Status>> + Send>>;

/// Takes the requests of another picker. `number`: of this one.
///
/// # Errors
/// The stream is meant for another picker, or there are too many.
pub async fn serve(
    number: u32,
    picker: Handle,
    mut asks: Streaming<Asks>,
    stop: CancellationToken,
) -> Result<AnswerStream, Status> {
    let first = match tokio::time::timeout(FIRST_MAX, asks.message()).await {
        Ok(first) => first?.unwrap_or_default(),
        Err(_) => return Err(Status::deadline_exceeded("expected a first message within 5 s")),
    };
    if first.to != number {
        let problem = format!("to: expected {number}, which is the number of this picker, got {}", first.to);
        return Err(Status::failed_precondition(problem));
    }
    if first.from >= PICKERS_MAX || first.from == number {
        let problem = format!("from: expected 0 to {} and not {number}, got {}", PICKERS_MAX - 1, first.from);
        return Err(Status::invalid_argument(problem));
    }
    let (sender, messages) = mpsc::channel(MESSAGES_MAX);
    // The other picker is connected once it hears something.
    let _ = sender.try_send(Answers::default());
    let (waiting, new) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let asker = Asker { answers: sender, waiting: Arc::clone(&waiting) };
    let Some(asked) = picker.asker(asker) else {
        return Err(Status::resource_exhausted("too many pickers ask this one"));
    };
    let (until, arrived) = (stop.clone(), Arc::clone(&new));
    tokio::spawn(async move {
        asked.take(first, read);
        arrived.notify_one();
        loop {
            let message = tokio::select! {
                () = until.cancelled() => return,
                message = asks.message() => message,
            };
            // A stream that breaks is an ended one: its requests end with it.
            let Ok(Some(message)) = message else { return };
            asked.take(message, read);
            arrived.notify_one();
        }
    });
    let answers = stream::unfold(Some(messages), move |messages| {
        let (waiting, new, stop) = (Arc::clone(&waiting), Arc::clone(&new), stop.clone());
        async move {
            let mut messages = messages?;
            let (soon, later) = SIGNS;
            let mut quiet = if waiting.load(Ordering::Relaxed) > 0 { soon } else { later };
            loop {
                tokio::select! {
                    biased;
                    // The other picker sees an ended stream, and owns the lanes.
                    () = stop.cancelled() => return None,
                    message = messages.recv() => return Some(match message {
                        Some(answers) => (Ok(answers), Some(messages)),
                        None => (Err(Status::aborted("answers are not read in time")), None),
                    }),
                    () = new.notified(), if quiet == later => quiet = soon,
                    () = tokio::time::sleep(quiet) => return Some((Ok(Answers::default()), Some(messages))),
                }
            }
        }
    });
    Ok(Box::pin(answers))
}

/// Reads a request of another picker. `None`: it cannot be read, which a picker of this version does not send.
fn read(ask: &Ask) -> Option<Asked> {
    let asked = pick_request::read(ask.request.as_ref()?).ok()?;
    Some(Asked { is_asked: true, ..asked })
}
