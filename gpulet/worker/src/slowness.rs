//! A process that answers, but always many times as late as it did.

use std::time::{Duration, Instant};

use crate::core_time::CoreTimes;

/// A run is slow when it takes so many times as long as the slowest of its size.
const SLOWER: u32 = 8;
/// And at least this long: what is below is easily disturbed, and hardly missed.
const LEAST: Duration = Duration::from_millis(5);
/// So much time in slow runs, with none between them that was not slow, is too much.
const TOO_MUCH: Duration = Duration::from_millis(500);

/// The slow runs of a session since the last one that was not.
#[derive(Default)]
pub(crate) struct Slowness(Option<Streak>);

struct Streak {
    began: Instant,
    /// What the process had of the cores then.
    times: CoreTimes,
    spent: Duration,
    runs: u32,
}

impl Slowness {
    /// A run ended. Gives the reason if the process is to be ended for its slowness. Whatever it is for which the
    /// process waited mostly for cores is not its fault.
    pub fn ran(
        &mut self,
        now: Instant,
        took: Duration,
        expected: Option<Duration>,
        times: impl FnOnce() -> CoreTimes,
    ) -> Option<String> {
        let expected = expected.filter(|expected| took >= LEAST && took >= expected.saturating_mul(SLOWER));
        let Some(expected) = expected else {
            self.0 = None;
            return None;
        };
        let Some(streak) = &mut self.0 else {
            self.0 = Some(Streak { began: now, times: times(), spent: Duration::ZERO, runs: 1 });
            return None;
        };
        streak.spent += took;
        streak.runs += 1;
        if streak.spent < TOO_MUCH {
            return None;
        }
        let passed = now.saturating_duration_since(streak.began);
        let starved = times().lacked(&streak.times, passed) >= streak.spent / 2;
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let (runs, took, expected) = (streak.runs, millis(took), millis(expected));
        self.0 = None;
        (!starved).then(|| {
            format!("{runs} batches in a row were slow, the last {took:.1} ms, expected {expected:.1} ms")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason after runs of so many milliseconds with one and the same expectation, if any.
    fn said(runs: &[u64], expected: Option<u64>, starved: bool) -> Option<String> {
        let (mut slowness, mut now, mut looks) = (Slowness::default(), Instant::now(), 0);
        runs.iter().find_map(|took| {
            let took = Duration::from_millis(*took);
            now += took;
            slowness.ran(now, took, expected.map(Duration::from_millis), || {
                looks += 1;
                CoreTimes::of_one(if starved { looks * 1000 } else { 0 })
            })
        })
    }

    #[test]
    fn half_a_second_of_slow_runs_is_too_much() {
        let reason = said(&[60; 20], Some(6), false);
        let expected = "10 batches in a row were slow, the last 60.0 ms, expected 6.0 ms";
        assert_eq!(reason.as_deref(), Some(expected));
    }

    #[test]
    fn what_is_not_slow_all_the_time_or_has_no_cores_is_left_alone() {
        assert_eq!(said(&[47; 99], Some(6), false), None, "less than eight times");
        assert_eq!(said(&[60, 60, 60, 60, 60, 60, 60, 6].repeat(9), Some(6), false), None);
        assert_eq!(said(&[4; 999], Some(0), false), None, "too quick to matter");
        assert_eq!(said(&[60; 99], None, false), None, "nothing is expected");
        assert_eq!(said(&[60; 99], Some(6), true), None);
    }
}
