//! Impossible states that were reached: counted on `/metrics`, and logged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use invariant::Violation;

use super::names;

/// An id is logged at most once in this time.
const LOG_PERIOD: Duration = Duration::from_secs(60);

/// Exports the violations of this process. Call [`ViolationMetrics::update`] periodically.
#[derive(Default)]
pub struct ViolationMetrics {
    logged: BTreeMap<&'static str, Logged>,
}

struct Logged {
    at: Instant,
    count: u64,
}

impl ViolationMetrics {
    /// Updates the counters, and logs each id that was violated since its last log line.
    pub fn update(&mut self, now: Instant) {
        let mut counts = BTreeMap::new();
        for violation in invariant::violations() {
            *counts.entry(violation.id).or_insert(0) += violation.count;
            if self.is_due(now, &violation) {
                let Violation { id, file, line, count } = violation;
                tracing::error!(id, file, line, count, "invariant violated: this is a bug in tessera");
            }
        }
        for (id, count) in counts {
            metrics::counter!(names::INVARIANT_VIOLATIONS.name, names::ID => id).absolute(count);
        }
    }

    fn is_due(&mut self, now: Instant, violation: &Violation) -> bool {
        let logged = self.logged.get(violation.id);
        let due = logged.is_none_or(|logged| {
            violation.count > logged.count && now.saturating_duration_since(logged.at) >= LOG_PERIOD
        });
        if due {
            self.logged.insert(violation.id, Logged { at: now, count: violation.count });
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_logged_at_most_once_a_minute_and_only_when_its_count_grew() {
        let mut metrics = ViolationMetrics::default();
        let start = Instant::now();
        let mut due = |seconds: u64, count: u64| {
            let violation = Violation { id: "node.test", file: "a.rs", line: 1, count };
            metrics.is_due(start + Duration::from_secs(seconds), &violation)
        };
        assert!(due(0, 1));
        assert!(!due(59, 2), "within the minute");
        assert!(due(60, 2));
        assert!(!due(200, 2), "nothing new");
        assert!(due(201, 3));
    }

    /// Builds with debug assertions panic where an invariant is violated.
    #[cfg(not(debug_assertions))]
    #[test]
    fn a_violation_is_on_the_metrics_page() {
        let recorder = crate::metrics::recorder().unwrap();
        let handle = recorder.handle();
        let mut violations = ViolationMetrics::default();
        for count in 1..=2 {
            invariant::violated!("node.violated_by_a_test");
            metrics::with_local_recorder(&recorder, || violations.update(Instant::now()));
            // Each pass through the loop violates the same place.
            let line =
                format!("tessera_invariant_violations_total{{id=\"node.violated_by_a_test\"}} {count}");
            assert!(handle.render().lines().any(|known| known == line), "{line}\n{}", handle.render());
        }
    }
}
