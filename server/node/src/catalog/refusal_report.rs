//! One line of the log for the requests of a model that were not answered lately.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::reason::Reason;

/// Least time between two lines of a model.
const INTERVAL: Duration = Duration::from_secs(10);

/// Requests of one model version that were not answered, by reason.
pub struct RefusalReport {
    counts: [AtomicU64; Reason::ALL.len()],
    reported: Mutex<Option<Reported>>,
}

impl Default for RefusalReport {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; Reason::ALL.len()], reported: Mutex::default() }
    }
}

/// What was counted at the last line.
struct Reported {
    at: Instant,
    counts: [u64; Reason::ALL.len()],
    answered: u64,
}

impl RefusalReport {
    /// Counts a request.
    pub fn count(&self, reason: Reason) {
        if let Some(count) = self.counts.get(reason.index()) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// The text of a line, if one is due: how many were not answered since the last one, and why. `answered`: how many were
    /// answered since the model was loaded. Requests whose client left are not reported.
    pub fn line(&self, now: Instant, answered: u64, objective: Option<Duration>) -> Option<String> {
        let counts = self.counts.each_ref().map(|count| count.load(Relaxed));
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let last = reported.get_or_insert(Reported { at: now, counts: [0; Reason::ALL.len()], answered: 0 });
        let mut recent: Vec<(u64, Reason)> = counts
            .iter()
            .zip(&last.counts)
            .map(|(count, before)| count - before)
            .zip(Reason::ALL)
            .filter(|&(count, reason)| count > 0 && reason != Reason::Cancelled)
            .collect();
        let first = last.counts.iter().all(|&count| count == 0);
        if recent.is_empty() || (!first && now.saturating_duration_since(last.at) < INTERVAL) {
            return None;
        }
        recent.sort_by(|a, b| b.cmp(a));
        let refused: u64 = recent.iter().map(|(count, _)| count).sum();
        let requests = refused + answered.saturating_sub(last.answered);
        let seconds = now.saturating_duration_since(last.at).as_secs();
        *last = Reported { at: now, counts, answered };
        let mut line = format!("{refused} of {requests} requests were not answered");
        if seconds > 0 {
            // Writing to a string cannot fail.
            let _ = write!(line, " in the last {seconds} s");
        }
        let reasons: Vec<String> =
            recent.iter().map(|(count, reason)| format!("{} {count}", reason.label())).collect();
        let _ = write!(line, ": {}", reasons.join(", "));
        if let Some(objective) = objective {
            let _ = write!(line, "; objective {objective:?}");
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_reported_at_once_and_then_all_of_ten_seconds_together() {
        let report = RefusalReport::default();
        let start = Instant::now();
        let line = |second: u64, answered: u64| {
            report.line(start + Duration::from_secs(second), answered, Some(Duration::from_millis(50)))
        };
        assert_eq!(line(0, 0), None);
        report.count(Reason::Cancelled);
        assert_eq!(line(1, 5), None);
        report.count(Reason::DeadlineUnmeetable);
        let first =
            "1 of 9 requests were not answered in the last 3 s: deadline_unmeetable 1; objective 50ms";
        assert_eq!(line(3, 8).as_deref(), Some(first));
        (0..3).for_each(|_| report.count(Reason::DeadlineUnmeetable));
        report.count(Reason::QueueFull);
        assert_eq!(line(5, 10), None);
        let then = "4 of 12 requests were not answered in the last 10 s: deadline_unmeetable 3, queue_full 1; objective 50ms";
        assert_eq!(line(13, 16).as_deref(), Some(then));
        assert_eq!(line(60, 30), None);
    }
}
