//! Whether a version has a lane, and requests that wait until it has one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use crate::reason::{Reason, Refusal};

/// How versions without a lane get one.
#[derive(Clone, Debug)]
pub struct ActivationOptions {
    /// Notified when a request waits for a lane.
    pub wanted: Arc<Notify>,
    /// Longest wait of a request.
    pub timeout: Duration,
    /// Whether only variants of families may lose their lanes.
    pub only_variants: bool,
}

/// Whether one version is active, that is, has a lane.
#[derive(Debug)]
pub struct Activation {
    /// None if versions always have a lane.
    options: Option<ActivationOptions>,
    active: watch::Sender<bool>,
    waiting: AtomicU32,
    /// Most requests that wait.
    waiting_max: AtomicU32,
}

/// Counts a request while it waits.
struct Waits<'a>(&'a AtomicU32);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Activation {
    /// An active version.
    pub fn new(options: Option<ActivationOptions>, waiting_max: u32) -> Self {
        let (waiting, waiting_max) = (AtomicU32::new(0), AtomicU32::new(waiting_max));
        Self { options, active: watch::Sender::new(true), waiting, waiting_max }
    }

    /// Changes how many requests may wait.
    pub fn set_waiting_max(&self, waiting_max: u32) {
        self.waiting_max.store(waiting_max, Ordering::SeqCst);
    }

    /// Whether the version may lose its lanes while it serves.
    pub fn may_deactivate(&self) -> bool {
        self.options.is_some()
    }

    /// Whether it has a lane.
    pub fn is_active(&self) -> bool {
        *self.active.borrow()
    }

    /// Sets whether it has a lane.
    pub fn set_active(&self, active: bool) {
        self.active.send_replace(active);
    }

    /// Number of requests that wait for a lane.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Requests a lane, and returns when the version has one.
    ///
    /// # Errors
    /// If it has no lane by the deadline or the timeout, or if too many requests wait.
    pub async fn activate(&self, name: &str, deadline: Option<Instant>) -> Result<(), Refusal> {
        let Some(options) = &self.options else { return Ok(()) };
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waits = Waits(&self.waiting);
        if waiting >= self.waiting_max.load(Ordering::SeqCst) {
            let message = format!("model `{name}`: its queue is full while the model is activated");
            return Err(Refusal::new(Reason::QueueFull, message));
        }
        options.wanted.notify_one();
        let timeout = Instant::now() + options.timeout;
        let until = deadline.map_or(timeout, |deadline| deadline.min(timeout));
        let mut active = self.active.subscribe();
        match timeout_at(until.into(), active.wait_for(|active| *active)).await {
            Ok(_) => Ok(()),
            Err(_) if deadline.is_some_and(|deadline| deadline <= timeout) => {
                let message = format!("model `{name}`: the deadline passed while the model was activated");
                Err(Refusal::new(Reason::Expired, message))
            }
            Err(_) => {
                let message = format!("model `{name}`: the model could not be activated in time");
                Err(Refusal::new(Reason::ModelNotReady, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activation(timeout: Duration) -> Activation {
        Activation::new(Some(ActivationOptions { wanted: Arc::default(), timeout, only_variants: false }), 1)
    }

    #[tokio::test]
    async fn requests_wait_for_a_lane_up_to_the_limits() {
        let activation = Arc::new(activation(Duration::from_secs(5)));
        activation.set_active(false);
        let own = Arc::clone(&activation);
        let waits = tokio::spawn(async move { own.activate("m", None).await });
        activation.options.as_ref().unwrap().wanted.notified().await;
        assert_eq!(activation.waiting(), 1);
        assert_eq!(activation.activate("m", None).await.unwrap_err().reason, Reason::QueueFull);
        activation.set_waiting_max(2);
        let passed = Some(Instant::now());
        assert_eq!(
            activation.activate("m", passed).await.unwrap_err().reason,
            Reason::Expired,
            "a second may wait now"
        );
        activation.set_active(true);
        waits.await.unwrap().unwrap();
        assert_eq!(activation.waiting(), 0);
    }

    #[tokio::test]
    async fn a_passed_deadline_and_a_missing_lane_have_different_reasons() {
        let activation = activation(Duration::from_millis(1));
        activation.set_active(false);
        assert_eq!(activation.activate("m", None).await.unwrap_err().reason, Reason::ModelNotReady);
        let now = Some(Instant::now());
        assert_eq!(activation.activate("m", now).await.unwrap_err().reason, Reason::Expired);
        assert_eq!(activation.waiting(), 0);
    }
}
