//! Token buckets in whole numbers, so that every machine computes the same.

use serde::Serialize;

use crate::Nanos;

/// Parts of one token, so that slow rates lose nothing between two events.
const PARTS: i128 = 1_000_000_000;

/// Refill rate and size of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Allowance {
    /// Tokens a second, at least 1.
    pub per_second: u64,
    /// Most tokens that are kept, at least 1.
    pub burst: u64,
}

/// Tokens that come in at a steady rate. The number may fall below zero: the debt is repaid before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenBucket {
    allowance: Allowance,
    /// In parts of a token, at most the burst.
    parts: i128,
    /// When `parts` was right.
    at: Nanos,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, parts: i128::from(allowance.burst) * PARTS, at: Nanos::ZERO }
    }

    /// Changes rate and size. The tokens that are left stay, up to the new size.
    pub(crate) fn change(&mut self, now: Nanos, allowance: Allowance) {
        self.take(now, 0);
        self.allowance = allowance;
        self.take(now, 0);
    }

    pub(crate) fn allowance(&self) -> Allowance {
        self.allowance
    }

    fn parts(&self, now: Nanos) -> i128 {
        let gained = i128::from(self.allowance.per_second).saturating_mul(i128::from(now.since(self.at).0));
        self.parts.saturating_add(gained).min(i128::from(self.allowance.burst) * PARTS)
    }

    /// Whether there are more tokens than `tokens`.
    pub(crate) fn has_more_than(&self, now: Nanos, tokens: u64) -> bool {
        self.parts(now) > i128::from(tokens) * PARTS
    }

    /// Whether there are at least `tokens`.
    pub(crate) fn has(&self, now: Nanos, tokens: u64) -> bool {
        self.parts(now) >= i128::from(tokens) * PARTS
    }

    /// Takes tokens, or returns them if the number is negative.
    pub(crate) fn take(&mut self, now: Nanos, tokens: i128) {
        let most = i128::from(self.allowance.burst) * PARTS;
        self.parts = self.parts(now).saturating_sub(tokens.saturating_mul(PARTS)).min(most);
        self.at = self.at.max(now);
    }

    /// When there will be at least `tokens`, and more than none; `now` if there are.
    pub(crate) fn refilled(&self, now: Nanos, tokens: u64) -> Nanos {
        let wanted = (i128::from(tokens) * PARTS).max(1);
        let missing = wanted - self.parts(now);
        if missing <= 0 {
            return now;
        }
        let rate = i128::from(self.allowance.per_second).max(1);
        now.after(Nanos(u64::try_from((missing + rate - 1) / rate).unwrap_or(u64::MAX)))
    }

    /// Whole tokens, rounded down; below zero while a debt is repaid.
    pub(crate) fn tokens(&self, now: Nanos) -> i64 {
        i64::try_from(self.parts(now).div_euclid(PARTS)).unwrap_or(i64::MIN)
    }

    /// Whether there are no more tokens than the burst.
    pub(crate) fn is_within_burst(&self) -> bool {
        self.parts <= i128::from(self.allowance.burst) * PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_millis(1_000);

    #[test]
    fn tokens_come_in_at_the_rate_and_stop_at_the_burst() {
        let mut bucket = TokenBucket::new(Allowance { per_second: 3, burst: 5 });
        assert_eq!(bucket.tokens(Nanos::ZERO), 5);
        bucket.take(Nanos::ZERO, 5);
        for (millis, tokens) in [(333, 0), (334, 1), (1_000, 3), (1_666, 4), (1_667, 5), (99_000, 5)] {
            assert_eq!(bucket.tokens(Nanos::from_millis(millis)), tokens, "after {millis} ms");
        }
    }

    #[test]
    fn a_debt_is_repaid_first_and_the_time_of_it_is_exact() {
        let mut bucket = TokenBucket::new(Allowance { per_second: 2, burst: 1 });
        bucket.take(Nanos::ZERO, 4);
        assert_eq!(bucket.tokens(Nanos::ZERO), -3);
        let full = bucket.refilled(Nanos::ZERO, 1);
        assert_eq!(full, Nanos::from_millis(2_000));
        assert!(bucket.has(full, 1) && !bucket.has(full.before(Nanos(1)), 1));
        let some = bucket.refilled(Nanos::ZERO, 0);
        assert!(bucket.has_more_than(some, 0) && !bucket.has_more_than(some.before(Nanos(1)), 0));
    }

    #[test]
    fn a_change_keeps_tokens_and_debts_up_to_the_new_burst() {
        let mut bucket = TokenBucket::new(Allowance { per_second: 2, burst: 10 });
        bucket.take(Nanos::ZERO, 10);
        bucket.change(SECOND, Allowance { per_second: 5, burst: 4 });
        assert_eq!(bucket.tokens(SECOND), 2, "one second at the old rate");
        assert_eq!(bucket.tokens(Nanos::from_millis(1_400)), 4);
        bucket.take(SECOND, 5);
        bucket.change(SECOND, Allowance { per_second: 1, burst: 1 });
        assert_eq!(bucket.tokens(SECOND), -3);
    }

    #[test]
    fn many_small_steps_lose_nothing() {
        let mut bucket = TokenBucket::new(Allowance { per_second: 7, burst: 100 });
        bucket.take(Nanos::ZERO, 100);
        for step in 1..=1_000_u64 {
            bucket.take(Nanos(step * 1_000_000), 0);
        }
        assert_eq!(bucket.tokens(SECOND), 7);
    }

    #[test]
    fn returned_tokens_do_not_exceed_the_burst_and_extremes_do_not_overflow() {
        let mut bucket = TokenBucket::new(Allowance { per_second: u64::MAX, burst: u64::MAX });
        bucket.take(Nanos::ZERO, -5);
        assert!(bucket.is_within_burst());
        bucket.take(Nanos::NEVER, i128::from(u64::MAX));
        bucket.take(Nanos::NEVER, i128::from(u64::MAX));
        assert_eq!(bucket.refilled(Nanos::NEVER, u64::MAX), Nanos::NEVER);
    }
}
