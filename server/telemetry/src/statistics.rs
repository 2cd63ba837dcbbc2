//! What was exported, what was dropped, and why.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::sampling::{Cause, Decision};
use crate::signal::SignalName;

/// Why spans, data points or log records were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The queue was full, because the collector is slow or does not answer.
    QueueFull,
    /// The collector refused them.
    Refused,
    /// They could not be sent, and the attempts are used up.
    SendFailed,
}

impl Dropped {
    /// Every cause.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::Refused, Self::SendFailed];
}

/// How often an error is logged at most.
const LOG_PERIOD: Duration = Duration::from_secs(60);

/// Counts of one signal: spans, data points or log records.
#[derive(Debug, Default)]
pub struct SignalStatistics {
    exported: AtomicU64,
    dropped: [AtomicU64; Dropped::ALL.len()],
    error: Mutex<Errors>,
}

#[derive(Debug, Default)]
struct Errors {
    last: Option<Box<str>>,
    logged: Option<Instant>,
}

impl SignalStatistics {
    /// How many the collector took.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// How many were dropped for this cause.
    pub fn dropped_for(&self, cause: Dropped) -> u64 {
        self.dropped.get(cause as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// How many were dropped.
    pub fn dropped_in_total(&self) -> u64 {
        self.dropped.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The last error of an export. It stays after exports succeed again.
    pub fn last_error(&self) -> Option<Box<str>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    pub(crate) fn add_exported(&self, count: u64) {
        self.exported.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self, cause: Dropped, count: u64) {
        if let Some(dropped) = self.dropped.get(cause as usize) {
            dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Keeps an error. True if it is time to log one.
    pub(crate) fn failed(&self, error: &str, now: Instant) -> bool {
        let mut errors = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        errors.last = Some(error.into());
        let is_due = errors.logged.is_none_or(|logged| now >= logged + LOG_PERIOD);
        if is_due {
            errors.logged = Some(now);
        }
        is_due
    }
}

/// Counts of everything. Read them at any time.
#[derive(Debug, Default)]
pub struct Statistics {
    signals: [SignalStatistics; SignalName::ALL.len()],
    kept: [AtomicU64; Cause::ALL.len()],
    limited: [AtomicU64; Cause::ALL.len()],
}

impl Statistics {
    /// The counts of a signal.
    pub fn signal(&self, name: SignalName) -> &SignalStatistics {
        let [traces, metrics, logs] = &self.signals;
        match name {
            SignalName::Traces => traces,
            SignalName::Metrics => metrics,
            SignalName::Logs => logs,
        }
    }

    /// Requests kept for this cause.
    pub fn kept(&self, cause: Cause) -> u64 {
        self.kept.get(cause as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Requests that this cause would have kept, beyond the rate limit.
    pub fn limited(&self, cause: Cause) -> u64 {
        self.limited.get(cause as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn sampled(&self, decision: Decision) {
        let (counts, cause) = match decision {
            Decision::Keep(cause) => (&self.kept, cause),
            Decision::Limited(cause) => (&self.limited, cause),
            Decision::Drop => return,
        };
        if let Some(count) = counts.get(cause as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_count() {
        let statistics = Statistics::default();
        for (count, cause) in (1..).zip(Dropped::ALL) {
            statistics.signal(SignalName::Logs).dropped(cause, count);
        }
        let logs = statistics.signal(SignalName::Logs);
        assert_eq!(Dropped::ALL.map(|cause| logs.dropped_for(cause)), [1, 2, 3]);
        assert_eq!(logs.dropped_in_total(), 6);
        statistics.sampled(Decision::Keep(Cause::Slow));
        statistics.sampled(Decision::Limited(Cause::Late));
        statistics.sampled(Decision::Drop);
        assert_eq!(Cause::ALL.map(|cause| statistics.kept(cause)), [0, 0, 0, 1, 0, 0]);
        assert_eq!(Cause::ALL.map(|cause| statistics.limited(cause)), [0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn errors_are_logged_once_a_minute() {
        let statistics = SignalStatistics::default();
        let start = Instant::now();
        assert!(statistics.failed("one", start));
        assert!(!statistics.failed("two", start + Duration::from_secs(59)));
        assert_eq!(statistics.last_error().as_deref(), Some("two"));
        assert!(statistics.failed("three", start + Duration::from_secs(60)));
    }
}
