//! Whether a version has a place where it runs, and requests that wait until it has one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use crate::reason::{Reason, Refusal};

/// How versions without a place get one.
#[derive(Clone, Debug)]
pub struct Waking {
    /// Told when a request wants one.
    pub wanted: Arc<Notify>,
    /// A request waits no longer than this.
    pub patience: Duration,
}

/// The place of one version.
#[derive(Debug)]
pub struct Place {
    /// None where versions always have one.
    waking: Option<Waking>,
    taken: watch::Sender<bool>,
    waiting: AtomicU32,
    /// Requests that may wait.
    room: u32,
}

/// Counts a request while it waits.
struct Waits<'a>(&'a AtomicU32);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Place {
    /// Of a version that has one.
    pub fn new(waking: Option<Waking>, room: u32) -> Self {
        Self { waking, taken: watch::Sender::new(true), waiting: AtomicU32::new(0), room }
    }

    /// Whether the version may lose its place while it serves.
    pub fn may_leave(&self) -> bool {
        self.waking.is_some()
    }

    /// Whether it has one.
    pub fn is_taken(&self) -> bool {
        *self.taken.borrow()
    }

    /// It has one now, or has none any more.
    pub fn set_taken(&self, taken: bool) {
        self.taken.send_replace(taken);
    }

    /// Requests that wait for one.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Asks for a place and returns once the version has one.
    ///
    /// # Errors
    /// When it has none by the deadline or within the patience, or too many wait already.
    pub async fn awaken(&self, name: &str, deadline: Option<Instant>) -> Result<(), Refusal> {
        let Some(waking) = &self.waking else { return Ok(()) };
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waits = Waits(&self.waiting);
        if waiting >= self.room {
            let message = format!("model `{name}`: its queue is full, and it is being brought back");
            return Err(Refusal::new(Reason::QueueFull, message));
        }
        waking.wanted.notify_one();
        let patience = Instant::now() + waking.patience;
        let until = deadline.map_or(patience, |deadline| deadline.min(patience));
        let mut taken = self.taken.subscribe();
        match timeout_at(until.into(), taken.wait_for(|taken| *taken)).await {
            Ok(_) => Ok(()),
            Err(_) if deadline.is_some_and(|deadline| deadline <= patience) => {
                let message = format!("model `{name}`: the deadline passed while it was brought back");
                Err(Refusal::new(Reason::Expired, message))
            }
            Err(_) => {
                let message = format!("model `{name}`: it could not be brought back yet");
                Err(Refusal::new(Reason::ModelNotReady, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(patience: Duration) -> Place {
        Place::new(Some(Waking { wanted: Arc::default(), patience }), 1)
    }

    #[tokio::test]
    async fn requests_wait_for_a_place_and_no_longer_than_they_may() {
        let place = Arc::new(place(Duration::from_secs(5)));
        place.set_taken(false);
        let own = Arc::clone(&place);
        let waits = tokio::spawn(async move { own.awaken("m", None).await });
        place.waking.as_ref().unwrap().wanted.notified().await;
        assert_eq!(place.waiting(), 1);
        assert_eq!(place.awaken("m", None).await.unwrap_err().reason, Reason::QueueFull);
        place.set_taken(true);
        waits.await.unwrap().unwrap();
        assert_eq!(place.waiting(), 0);
    }

    #[tokio::test]
    async fn a_deadline_that_passes_meanwhile_and_a_place_that_never_comes_are_told_apart() {
        let place = place(Duration::from_millis(1));
        place.set_taken(false);
        assert_eq!(place.awaken("m", None).await.unwrap_err().reason, Reason::ModelNotReady);
        let now = Some(Instant::now());
        assert_eq!(place.awaken("m", now).await.unwrap_err().reason, Reason::Expired);
        assert_eq!(place.waiting(), 0);
    }
}
