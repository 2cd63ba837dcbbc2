//! Requests that ended, counted over the last minute, five minutes and hour.

use std::collections::VecDeque;

use serde::Serialize;

/// Seconds that are kept one by one.
const SECONDS: usize = 60;
/// Seconds in a period of the longer memory.
pub const PERIOD_SECONDS: u64 = 10;
/// Periods that are kept: an hour.
const PERIODS: usize = 360;

/// Requests that ended in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// Answered within the objective, or without one.
    pub in_time: u32,
    /// Answered after the deadline.
    pub late: u32,
    /// Not answered.
    pub unanswered: u32,
}

impl Ended {
    /// All of them.
    pub fn all(self) -> u64 {
        u64::from(self.in_time) + u64::from(self.late) + u64::from(self.unanswered)
    }

    /// Part that was answered in time. `None` if none ended.
    pub fn attainment(self) -> Option<f64> {
        let all = self.all();
        (all > 0).then(|| f64::from(self.in_time) / all as f64)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            in_time: self.in_time.saturating_add(other.in_time),
            late: self.late.saturating_add(other.late),
            unanswered: self.unanswered.saturating_add(other.unanswered),
        }
    }
}

/// What ended lately, in a bounded amount of memory.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    seconds: VecDeque<Ended>,
    /// Newest last. The last one is not complete.
    periods: VecDeque<Ended>,
    second: u64,
}

impl Recent {
    /// Adds what ended in the next second.
    pub fn add(&mut self, ended: Ended) {
        if self.seconds.len() >= SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(ended);
        if self.second.is_multiple_of(PERIOD_SECONDS) {
            if self.periods.len() >= PERIODS {
                self.periods.pop_front();
            }
            self.periods.push_back(Ended::default());
        }
        self.second += 1;
        if let Some(last) = self.periods.back_mut() {
            *last = last.and(ended);
        }
    }

    /// What ended in the last seconds, at most 60.
    pub fn last_seconds(&self, seconds: usize) -> Ended {
        self.seconds.iter().rev().take(seconds).copied().fold(Ended::default(), Ended::and)
    }

    /// What ended in the last minutes, at most 60, to ten seconds.
    pub fn last_minutes(&self, minutes: usize) -> Ended {
        let periods = minutes.saturating_mul(60 / PERIOD_SECONDS as usize);
        self.periods.iter().rev().take(periods).copied().fold(Ended::default(), Ended::and)
    }

    /// What ended in each period of the last hour, oldest first. The last one is not complete.
    pub fn periods(&self) -> impl Iterator<Item = Ended> {
        self.periods.iter().copied()
    }

    /// How many of the last seconds are known, at most this many.
    pub fn known_seconds(&self, seconds: usize) -> usize {
        self.seconds.len().min(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_apart_and_memory_is_bounded() {
        let mut recent = Recent::default();
        for second in 0..10_000_u32 {
            let bad = u32::from(second >= 9_970);
            recent.add(Ended { in_time: 1 - bad, late: bad, unanswered: 0 });
        }
        assert_eq!(recent.last_seconds(10), Ended { in_time: 0, late: 10, unanswered: 0 });
        assert_eq!(recent.last_seconds(60).attainment(), Some(0.5));
        assert_eq!(recent.last_minutes(5), Ended { in_time: 270, late: 30, unanswered: 0 });
        assert_eq!(recent.last_minutes(60).all(), 3_600);
        assert!(recent.seconds.len() == SECONDS && recent.periods.len() == PERIODS);
        assert_eq!(Ended::default().attainment(), None);
    }
}
