//! Whether this client kept up, so that what was measured is the server's doing and not its own.
//!
//! Latency counts from when a request was due. A client that sends late adds its own delay to every answer, so a
//! second in which it did is not a measurement of the server. Requests that waited for a free connection do not count:
//! it is the server that keeps connections busy.

use crate::record::{SLO_STEPS, SecondTally};

/// Share of the tightest objective that the client may add.
const SHARE: f64 = 0.05;
/// Nanoseconds that are always allowed: the grain of an ordinary machine's scheduling.
const ALLOWED: u64 = 2_000_000;
/// Share of a second's requests that may be sent later.
const QUANTILE: f64 = 0.99;

/// Nanoseconds after which a request is sent too late, by the tightest objective of the workload.
pub(crate) fn allowed(slo_min: u64) -> u64 {
    ((slo_min as f64 * SHARE) as u64).max(ALLOWED)
}

/// Whether the client kept up in a second.
pub(crate) fn kept_up(second: &SecondTally, allowed: u64) -> bool {
    let Some(errors) = &second.send_error else { return true };
    // A handful of requests is judged by all but one of them: a single hiccup is no overload.
    let count = errors.len();
    let late = errors.count_between(allowed / 1_000 + 1, u64::MAX);
    late <= ((count as f64 * (1.0 - QUANTILE)) as u64).max(1)
}

/// Multiple of the SLO as a number.
pub(crate) fn of_slo(steps: u64) -> f64 {
    steps as f64 / SLO_STEPS as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Due, Objective, Record};

    fn second(errors: &[u64]) -> SecondTally {
        let mut record = Record::new(vec![Objective { slo: 1, deadline: true }], 1, 0, false);
        for &error in errors {
            record.begun(Due { model: 0, stage: 0, at: 0 }, error);
        }
        record.take_seconds(1).remove(&0).unwrap_or_default()
    }

    #[test]
    fn one_late_request_in_a_hundred_is_forgiven() {
        let allowed = allowed(10_000_000);
        assert_eq!(allowed, ALLOWED);
        assert_eq!(super::allowed(1_000_000_000), 50_000_000);
        let mut errors = vec![100_000; 300];
        assert!(kept_up(&second(&errors), allowed));
        errors[..3].fill(50_000_000);
        assert!(kept_up(&second(&errors), allowed));
        errors[..4].fill(50_000_000);
        assert!(!kept_up(&second(&errors), allowed));
        assert!(kept_up(&second(&[90_000_000]), allowed));
        assert!(!kept_up(&second(&[90_000_000, 90_000_000]), allowed));
        assert!(kept_up(&second(&[]), allowed));
    }
}
