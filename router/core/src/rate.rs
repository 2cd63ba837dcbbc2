//! How fast rows arrive and how busy lanes are, as decaying averages over virtual time.

use crate::Nanos;

/// `exp(-x)` for `x >= 0` by basic arithmetic only, so that every machine gets the same bits; at most 1 % off.
pub(crate) fn decay(x: f64) -> f64 {
    let x = x / 4.0;
    let root = 1.0 / (1.0 + x + x * x / 2.0 + x * x * x / 6.0);
    let square = root * root;
    square * square
}

/// Events a second, an event weighing less the longer ago it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Events weighed by age, over the memory's length.
    per_second: f64,
    at: Nanos,
    /// When the first event came; before a full memory has passed there is less to divide by.
    since: Nanos,
    memory: f64,
}

impl Rate {
    /// Remembers about this long.
    pub(crate) fn over(memory: Nanos) -> Self {
        Self { per_second: 0.0, at: Nanos::ZERO, since: Nanos::NEVER, memory: memory.0.max(1) as f64 }
    }

    pub(crate) fn count(&mut self, now: Nanos, events: u32) {
        if self.since == Nanos::NEVER {
            self.since = now;
        }
        self.per_second = self.decayed(now) + f64::from(events) * 1e9 / self.memory;
        self.at = now;
    }

    /// When events came last.
    pub(crate) fn last(&self) -> Nanos {
        self.at
    }

    fn decayed(&self, now: Nanos) -> f64 {
        self.per_second * decay(now.since(self.at).0 as f64 / self.memory)
    }

    /// Events a second, zero before the first.
    pub(crate) fn per_second(&self, now: Nanos) -> f64 {
        if self.since == Nanos::NEVER {
            return 0.0;
        }
        let known = 1.0 - decay(now.since(self.since).0 as f64 / self.memory);
        self.decayed(now) / known.max(0.05)
    }
}

/// The largest of the counts of the last one to two memories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Peak {
    current: u32,
    former: u32,
    /// Until when counts belong to `current`.
    until: Nanos,
    memory: Nanos,
}

impl Peak {
    /// Remembers at least this long.
    pub(crate) fn over(memory: Nanos) -> Self {
        Self { current: 0, former: 0, until: Nanos::ZERO, memory }
    }

    pub(crate) fn count(&mut self, now: Nanos, count: u32) {
        if now >= self.until {
            let recent = now < self.until.after(self.memory);
            self.former = if recent { self.current } else { 0 };
            (self.current, self.until) = (0, now.after(self.memory));
        }
        self.current = self.current.max(count);
    }

    pub(crate) fn forget(&mut self) {
        *self = Self::over(self.memory);
    }

    pub(crate) fn largest(&self) -> u32 {
        self.current.max(self.former)
    }
}

/// Share of lanes that were busy lately, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    share: f64,
    at: Nanos,
    memory: f64,
}

impl Load {
    pub(crate) fn over(memory: Nanos) -> Self {
        Self { share: 0.0, at: Nanos::ZERO, memory: memory.0.max(1) as f64 }
    }

    #[cfg(test)]
    pub(crate) fn at(share: f64) -> Self {
        Self { share, at: Nanos::ZERO, memory: 1.0 }
    }

    /// Since the last call `busy` of the lanes were busy.
    pub(crate) fn was(&mut self, now: Nanos, busy: f64) {
        self.share = self.now(now, busy);
        self.at = now;
    }

    pub(crate) fn now(&self, now: Nanos, busy: f64) -> f64 {
        let kept = decay(now.since(self.at).0 as f64 / self.memory);
        self.share * kept + busy * (1.0 - kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_approximation_is_close() {
        for step in 0..400 {
            let x = f64::from(step) / 50.0;
            assert!((decay(x) - (-x).exp()).abs() < 0.01, "{x}");
        }
        assert_eq!(decay(0.0), 1.0);
    }

    #[test]
    fn a_steady_stream_has_its_rate_from_the_start_and_forgets_when_it_ends() {
        let mut rate = Rate::over(Nanos::from_millis(500));
        assert_eq!(rate.per_second(Nanos::from_millis(3)), 0.0);
        for ms in 0..2_000 {
            rate.count(Nanos::from_millis(ms), 2);
            if ms > 100 {
                let seen = rate.per_second(Nanos::from_millis(ms));
                assert!((1_900.0..2_150.0).contains(&seen), "{seen} after {ms} ms");
            }
        }
        assert!(rate.per_second(Nanos::from_millis(5_000)) < 10.0);
    }

    #[test]
    fn a_peak_is_forgotten_after_one_to_two_memories() {
        let mut peak = Peak::over(Nanos::from_millis(1_000));
        for (ms, count, largest) in
            [(0, 3, 3), (900, 9, 9), (1_000, 2, 9), (1_999, 4, 9), (2_000, 1, 4), (9_000, 1, 1)]
        {
            peak.count(Nanos::from_millis(ms), count);
            assert_eq!(peak.largest(), largest, "at {ms} ms");
        }
    }

    #[test]
    fn load_is_the_share_of_time_that_lanes_were_busy() {
        let mut load = Load::over(Nanos::from_millis(100));
        for ms in 1..1_000 {
            load.was(Nanos::from_millis(ms), if ms % 4 == 0 { 0.0 } else { 1.0 });
        }
        assert!((load.now(Nanos::from_millis(999), 0.0) - 0.75).abs() < 0.02);
    }
}
