//! Whether this client kept up, so that the figures describe the server.
//!
//! Latency counts from the time a request was due. A client that sends late adds its own delay to every answer, so a second
//! in which it did so does not measure the server. Requests that waited for a free connection do not count, because the
//! server keeps the connections busy.

use crate::record::{SLO_STEPS, SecondTally};

/// Share of the tightest objective that the client may add.
const SHARE: f64 = 0.05;
/// Nanoseconds that are always allowed: the scheduling granularity of an ordinary machine.
const ALLOWED: u64 = 2_000_000;
/// Share of a second's requests that may be sent later.
const QUANTILE: f64 = 0.99;

/// The delay in nanoseconds above which a request is sent too late, from the workload's tightest objective.
pub(crate) fn allowed(slo_min: u64) -> u64 {
    ((slo_min as f64 * SHARE) as u64).max(ALLOWED)
}

/// Whether the client kept up in a second.
pub(crate) fn kept_up(second: &SecondTally, allowed: u64) -> bool {
    let Some(errors) = &second.send_error else { return true };
    // With few requests, one may be late: a single delay is not overload.
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
