//! Attempts to send one message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::failure::{Failure, Retry};
use super::{Client, Rejected, SignalName};
use crate::ids::IdSource;
use crate::statistics::{Dropped, Statistics};

/// Longest pause before the second attempt. It doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Sends the messages of one signal.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) client: Client,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) ids: Arc<IdSource>,
    /// Ends a pause early.
    pub(crate) hurry: Arc<Notify>,
    /// How long a message is tried at most, before it is dropped.
    pub(crate) retry_for: Duration,
}

impl Delivery {
    /// Sends a message of `count` records, as often as OTLP allows, and counts the result.
    pub(crate) async fn deliver(
        &mut self,
        signal: SignalName,
        message: Bytes,
        count: u64,
        rejected: fn(&[u8]) -> Option<Rejected>,
    ) {
        let started = Instant::now();
        let mut longest = PAUSE_FIRST;
        loop {
            let failure = match self.client.send(signal, message.clone()).await {
                Ok(response) => return self.accepted(signal, count, rejected(&response)),
                Err(failure) => failure,
            };
            let pause = match failure.retry {
                Retry::No => return self.dropped(signal, count, Dropped::Refused, &failure),
                Retry::Backoff => self.jitter(longest),
                Retry::After(pause) => pause,
            };
            if started.elapsed().saturating_add(pause) > self.retry_for {
                return self.dropped(signal, count, Dropped::SendFailed, &failure);
            }
            self.report(signal, &failure.text);
            let may_hurry = failure.retry == Retry::Backoff;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.hurry.notified(), if may_hurry => {}
            }
            longest = (longest * 2).min(PAUSE_MAX);
        }
    }

    /// Between half and all of the longest pause, so that servers do not send at the same time.
    fn jitter(&self, longest: Duration) -> Duration {
        let thousandths = u32::try_from(500 + self.ids.bits() % 501).unwrap_or(1000);
        longest * thousandths / 1000
    }

    fn accepted(&self, signal: SignalName, count: u64, rejected: Option<Rejected>) {
        let rejected = rejected.unwrap_or_default();
        let refused = rejected.count.min(count);
        let statistics = self.statistics.signal(signal);
        statistics.add_exported(count - refused);
        if refused > 0 {
            statistics.dropped(Dropped::Refused, refused);
        }
        if !rejected.message.is_empty() {
            self.report(signal, &rejected.message);
        }
    }

    fn dropped(&self, signal: SignalName, count: u64, cause: Dropped, failure: &Failure) {
        self.statistics.signal(signal).dropped(cause, count);
        self.report(signal, &failure.text);
    }

    fn report(&self, signal: SignalName, error: &str) {
        let statistics = self.statistics.signal(signal);
        if statistics.failed(error, Instant::now()) {
            let dropped = statistics.dropped_in_total();
            tracing::warn!(%signal, error, dropped, "telemetry cannot be exported");
        }
    }
}
