//! Attempts to keep a connection: the pauses between them, and which failures are news.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Attempts of one connection.
#[derive(Debug)]
pub struct Attempts {
    first: Duration,
    longest: Duration,
    pause: Duration,
    is_reported: bool,
}

impl Attempts {
    /// With these first and longest pauses. A pause doubles with each attempt that fails.
    pub fn new((first, longest): (Duration, Duration)) -> Self {
        Self { first, longest, pause: first, is_reported: false }
    }

    /// An attempt ended. Returns whether that is news: the first failure after something was `heard`.
    pub fn ended(&mut self, heard: bool) -> bool {
        if heard {
            (self.pause, self.is_reported) = (self.first, false);
        }
        !std::mem::replace(&mut self.is_reported, true)
    }

    /// Waits until the next attempt. False if it was stopped before.
    pub async fn pause(&mut self, stop: &CancellationToken) -> bool {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(self.longest);
        stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pauses_double_up_to_the_longest_and_only_the_first_failure_is_news() {
        let mut attempts = Attempts::new((Duration::from_millis(1), Duration::from_millis(3)));
        let stop = CancellationToken::new();
        assert!(attempts.ended(false));
        let mut pauses = Vec::new();
        for _ in 0..4 {
            pauses.push(attempts.pause.as_millis());
            assert!(attempts.pause(&stop).await);
            assert!(!attempts.ended(false));
        }
        assert_eq!(pauses, [1, 2, 3, 3]);
        assert!(attempts.ended(true), "it was connected in between");
        assert_eq!(attempts.pause, Duration::from_millis(1));
        stop.cancel();
        assert!(!attempts.pause(&stop).await);
    }
}
