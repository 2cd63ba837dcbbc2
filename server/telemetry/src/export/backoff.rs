//! Pauses between the attempts to send one message.

use std::time::Duration;

use super::failure::Retry;

/// Longest pause before the second attempt. It doubles with each further one.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two attempts, unless the collector asks for a longer one.
const LONGEST: Duration = Duration::from_secs(30);

/// The attempts to send one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    retry_for: Duration,
    longest: Duration,
}

impl Backoff {
    /// Attempts for this long.
    pub(super) fn new(retry_for: Duration) -> Self {
        Self { retry_for, longest: FIRST }
    }

    /// The pause after an attempt that failed, which ended this long after the first began. `None`: no further attempt.
    /// `random` has any value.
    pub(super) fn pause(&mut self, elapsed: Duration, retry: Retry, random: u64) -> Option<Duration> {
        let pause = match retry {
            Retry::No => return None,
            Retry::Backoff => {
                // Between half and all of the longest pause, so that servers do not send at the same time.
                let thousandths = u32::try_from(500 + random % 501).unwrap_or(1000);
                let pause = self.longest * thousandths / 1000;
                self.longest = (self.longest * 2).min(LONGEST);
                pause
            }
            Retry::After(pause) => pause,
        };
        (elapsed.saturating_add(pause) <= self.retry_for).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut backoff = Backoff::new(Duration::from_secs(1000));
        let pauses: Vec<u64> =
            (0..7).map(|_| backoff.pause(Duration::ZERO, Retry::Backoff, 500).unwrap().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.pause(Duration::ZERO, Retry::Backoff, 0), Some(millis(15_000)));
    }

    #[test]
    fn the_collector_may_ask_for_a_pause() {
        let mut backoff = Backoff::new(Duration::from_secs(60));
        assert_eq!(backoff.pause(millis(0), Retry::After(millis(40_000)), 0), Some(millis(40_000)));
        assert_eq!(backoff.pause(millis(0), Retry::After(Duration::MAX), 0), None);
        assert_eq!(backoff.pause(millis(0), Retry::No, 0), None);
    }

    proptest! {
        #[test]
        fn attempts_end(randoms in prop::collection::vec(any::<u64>(), 200)) {
            let mut backoff = Backoff::new(Duration::from_secs(60));
            let mut elapsed = Duration::ZERO;
            let mut pauses = 0;
            for random in randoms {
                let Some(pause) = backoff.pause(elapsed, Retry::Backoff, random) else { break };
                elapsed += pause;
                pauses += 1;
            }
            prop_assert!(pauses < 10 && elapsed <= Duration::from_secs(60));
        }
    }
}
