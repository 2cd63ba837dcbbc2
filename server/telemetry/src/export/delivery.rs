//! Attempts to send one message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::failure::{Failure, Retry};
use super::{Client, Rejected};
use crate::ids::IdSource;
use crate::signal::SignalName;
use crate::statistics::{Dropped, Statistics};

/// Sends the messages of one signal.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) client: Client,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) ids: Arc<IdSource>,
    /// Ends a pause early, for a flush. A pause that the collector asked for does not end early.
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
        let mut backoff = Backoff::new(self.retry_for);
        loop {
            let failure = match self.client.send(signal, message.clone()).await {
                Ok(response) => return self.accepted(signal, count, rejected(&response)),
                Err(failure) => failure,
            };
            let Some(pause) = backoff.pause(started.elapsed(), failure.retry, self.ids.bits()) else {
                return self.dropped(signal, count, &failure);
            };
            self.report(signal, &failure.text);
            let may_hurry = failure.retry == Retry::Backoff;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.hurry.notified(), if may_hurry => {}
            }
        }
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

    fn dropped(&self, signal: SignalName, count: u64, failure: &Failure) {
        let cause = if failure.retry == Retry::No { Dropped::Refused } else { Dropped::SendFailed };
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
