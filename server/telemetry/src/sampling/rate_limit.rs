//! A limit of requests per second.

use std::num::NonZeroU32;
use std::time::Duration;

/// A token bucket that holds the tokens of one second.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimit {
    per_second: f64,
    tokens: f64,
    filled: Duration,
}

impl RateLimit {
    pub(super) fn new(per_second: NonZeroU32) -> Self {
        let per_second = f64::from(per_second.get());
        Self { per_second, tokens: per_second, filled: Duration::ZERO }
    }

    /// Takes a token if there is one.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let elapsed = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.per_second);
        let is_allowed = self.tokens >= 1.0;
        if is_allowed {
            self.tokens -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_second_at_once_then_the_rate() {
        let mut limit = RateLimit::new(NonZeroU32::new(10).unwrap());
        let taken = |limit: &mut RateLimit, now: f64| {
            (0..100).filter(|_| limit.take(Duration::from_secs_f64(now))).count()
        };
        assert_eq!(taken(&mut limit, 0.0), 10);
        assert_eq!(taken(&mut limit, 0.05), 0);
        assert_eq!(taken(&mut limit, 0.5), 5);
        assert_eq!(taken(&mut limit, 0.4), 0, "a clock that goes backwards gives no tokens");
        assert_eq!(taken(&mut limit, 60.0), 10);
    }
}
