//! The most that lanes can answer if the requests of one model arrive evenly: upper bounds for comparing policies.
//!
//! Each lane runs one batch after another. A request that just missed a batch waits until the next one starts on some
//! lane, and then for its own batch to run. Both bounds are Symphony's (formulas from memory).

use crate::Nanos;

/// A batch size and its throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Rows a batch.
    pub batch: u32,
    /// Rows a second of all lanes together.
    pub throughput: f64,
}

/// Independent lanes: a request waits one batch time at most, so the largest `b` with `2 L(b) <= slo`.
///
/// `time` returns the time of a batch by its rows and must not decrease. `None` if even one row is late.
pub fn uncoordinated(time: impl Fn(u32) -> Nanos, slo: Nanos, lanes: u32, max_batch: u32) -> Option<Bound> {
    best(&time, lanes, max_batch, |time| time.0.checked_mul(2).is_some_and(|both| both <= slo.0))
}

/// Lanes that start their batches at even intervals: a request waits a `lanes`-th of a batch time at most, so the
/// largest `b` with `(1 + 1 / lanes) L(b) <= slo`.
///
/// `time` returns the time of a batch by its rows and must not decrease. `None` if even one row is late.
pub fn staggered(time: impl Fn(u32) -> Nanos, slo: Nanos, lanes: u32, max_batch: u32) -> Option<Bound> {
    let wait = |time: Nanos| time.0.div_ceil(u64::from(lanes.max(1)));
    best(&time, lanes, max_batch, |time| time.0.checked_add(wait(time)).is_some_and(|both| both <= slo.0))
}

fn best(
    time: &impl Fn(u32) -> Nanos,
    lanes: u32,
    max_batch: u32,
    in_time: impl Fn(Nanos) -> bool,
) -> Option<Bound> {
    let batch = (1..=max_batch).take_while(|&rows| in_time(time(rows))).last()?;
    let throughput = f64::from(lanes) * f64::from(batch) * 1e9 / time(batch).0 as f64;
    Some(Bound { batch, throughput })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_in_time_or_everything() {
        let ten = |_| Nanos::from_millis(10);
        assert_eq!(uncoordinated(ten, Nanos::from_millis(19), 8, 32), None);
        assert_eq!(staggered(ten, Nanos::from_millis(11), 8, 32), None);
        assert_eq!(uncoordinated(ten, Nanos::NEVER, 8, 32), Some(Bound { batch: 32, throughput: 25_600.0 }));
    }

    #[test]
    fn one_lane_cannot_be_staggered() {
        let time = |rows: u32| Nanos::from_micros(1_000 * u64::from(rows) + 5_000);
        let slo = Nanos::from_millis(25);
        assert_eq!(uncoordinated(time, slo, 1, 64), staggered(time, slo, 1, 64));
    }
}
