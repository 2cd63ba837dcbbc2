//! Detects a process that answers every batch many times slower than expected.

use std::time::{Duration, Instant};

use crate::core_time::CoreTimes;

/// A batch is slow if it takes this many times as long as the slowest of its size.
const SLOW_FACTOR: u32 = 8;
/// Quicker batches are never slow: noise is a large part of their time, and their delay hardly matters.
const SLOW_MIN: Duration = Duration::from_millis(5);
/// Total time of consecutive slow batches after which the process is killed.
const STREAK_MAX: Duration = Duration::from_millis(500);

/// The consecutive slow batches of a session.
#[derive(Default)]
pub(crate) struct Slowness(Option<Streak>);

struct Streak {
    began: Instant,
    /// Core times of the process at that time.
    times: CoreTimes,
    spent: Duration,
    runs: u32,
}

impl Slowness {
    /// Records a batch. Returns the reason if the process must be killed. A streak during which the process mostly
    /// waited for cores does not count.
    pub fn ran(
        &mut self,
        now: Instant,
        took: Duration,
        expected: Option<Duration>,
        times: impl FnOnce() -> CoreTimes,
    ) -> Option<String> {
        let expected =
            expected.filter(|expected| took >= SLOW_MIN && took >= expected.saturating_mul(SLOW_FACTOR));
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
        if streak.spent < STREAK_MAX {
            return None;
        }
        let passed = now.saturating_duration_since(streak.began);
        let starved = times().starved(&streak.times, passed) >= streak.spent / 2;
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

    /// The reason after batches of these milliseconds with the same expectation, if there is one.
    fn reason(runs: &[u64], expected: Option<u64>, starved: bool) -> Option<String> {
        let (mut slowness, mut now, mut reads) = (Slowness::default(), Instant::now(), 0);
        runs.iter().find_map(|took| {
            let took = Duration::from_millis(*took);
            now += took;
            slowness.ran(now, took, expected.map(Duration::from_millis), || {
                reads += 1;
                CoreTimes::of_one(if starved { reads * 1000 } else { 0 })
            })
        })
    }

    #[test]
    fn half_a_second_of_slow_batches_ends_the_process() {
        let reason = reason(&[60; 20], Some(6), false);
        let expected = "10 batches in a row were slow, the last 60.0 ms, expected 6.0 ms";
        assert_eq!(reason.as_deref(), Some(expected));
    }

    #[test]
    fn interrupted_streaks_and_starved_processes_are_tolerated() {
        assert_eq!(reason(&[47; 99], Some(6), false), None, "below the factor");
        assert_eq!(reason(&[60, 60, 60, 60, 60, 60, 60, 6].repeat(9), Some(6), false), None);
        assert_eq!(reason(&[4; 999], Some(0), false), None, "below the least time");
        assert_eq!(reason(&[60; 99], None, false), None, "no expectation yet");
        assert_eq!(reason(&[60; 99], Some(6), true), None);
    }
}
