//! What one lane used of its time quota.

use crate::time_quota::{TimeQuota, Wait};
use crate::{LaneId, Nanos};

/// A batch that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    /// Time up to which it is counted as used.
    counted: Nanos,
    /// When it should end.
    pub end: Nanos,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub lane: LaneId,
    pub quota: TimeQuota,
    /// Time that it ran in the window, and what earlier windows exceeded the limit by.
    pub used: Nanos,
    /// End of the window of `used`.
    until: Nanos,
    pub running: Option<Running>,
    /// Since when requests wait for it; `None` if none does.
    pub waits: Option<Nanos>,
    /// It gets no further batch.
    pub leaving: bool,
    /// What it waits for, as of the last refresh; `None` if it has a token.
    pub wait: Option<Wait>,
}

impl Account {
    pub fn new(now: Nanos, lane: LaneId, quota: TimeQuota) -> Self {
        let until = quota.window_end(now);
        let wait = Some(Wait { begins: Nanos::NEVER, look: Nanos::NEVER });
        Self { lane, quota, used: Nanos::ZERO, until, running: None, waits: None, leaving: false, wait }
    }

    pub fn change(&mut self, now: Nanos, quota: TimeQuota) {
        self.settle(now);
        if quota.window != self.quota.window {
            (self.used, self.until) = (Nanos::ZERO, quota.window_end(now));
        }
        (self.quota, self.leaving) = (quota, false);
    }

    pub fn start(&mut self, now: Nanos, end: Nanos) {
        self.settle(now);
        self.running = Some(Running { counted: now, end });
    }

    pub fn end(&mut self, now: Nanos) {
        self.settle(now);
        self.running = None;
    }

    fn count(&mut self, until: Nanos) {
        if let Some(running) = &mut self.running {
            self.used = self.used.after(until.since(running.counted));
            running.counted = running.counted.max(until);
        }
    }

    /// Counts the time of the running batch, and begins a new window if the last one has ended. Time above the limit is
    /// carried over to the next window, at most a whole limit, so that a batch that hung does not stop its lane for
    /// long.
    pub fn settle(&mut self, now: Nanos) {
        if now >= self.until {
            self.count(self.until);
            let carried = self.used.since(self.quota.limit);
            // Windows that passed as a whole: each was used as a whole, or not at all.
            let passed = now.since(self.until).0.checked_div(self.quota.window.0).unwrap_or(0);
            let each = |span: Nanos| Nanos(span.0.saturating_mul(passed));
            let start = self.until.after(each(self.quota.window));
            let carried = if let Some(running) = &mut self.running {
                running.counted = start;
                carried.after(each(self.quota.window.since(self.quota.limit)))
            } else {
                carried.since(each(self.quota.limit))
            };
            (self.used, self.until) = (carried.min(self.quota.limit), start.after(self.quota.window));
        }
        self.count(now);
    }

    /// Rule 1: the batch ends in this window and its time is left, or the lane may use all its time.
    pub fn is_within_limit(&self, now: Nanos) -> bool {
        let quota = &self.quota;
        quota.is_unlimited()
            || (self.used.after(quota.batch) <= quota.limit && now.after(quota.batch) <= self.until)
    }

    /// Whether its batch still runs at a time from now on.
    pub fn runs_at(&self, at: Nanos) -> bool {
        self.running.is_some_and(|running| at < running.end)
    }

    pub fn waits_longer_than(&self, other: &Self) -> bool {
        self.waits.is_some_and(|since| other.waits.is_none_or(|theirs| since < theirs))
    }

    /// Whether it has, or must be able to have, its units at a time from now on: it runs, or its place is reserved.
    pub fn takes_units(&self, at: Nanos) -> bool {
        let quota = &self.quota;
        let has_time =
            at >= self.until || quota.is_unlimited() || self.used.after(quota.batch) <= quota.limit;
        self.runs_at(at) || (self.waits.is_some() && has_time && quota.left_of_place(at) > Nanos::ZERO)
    }
}
