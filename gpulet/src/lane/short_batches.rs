//! Which batches of a model are known to be short.

use std::collections::BTreeMap;
use std::time::Duration;

/// Learns from batches how many input bytes of a model run within a time.
#[derive(Debug, Default)]
pub(super) struct ShortBatches {
    /// The longest time of a short batch; zero if none counts as short.
    time_max: Duration,
    /// Input bytes of the largest short batch, by model.
    bytes: BTreeMap<u32, usize>,
}

impl ShortBatches {
    pub(super) fn within(time_max: Duration) -> Self {
        Self { time_max, bytes: BTreeMap::new() }
    }

    /// Whether a batch of this many bytes is known to be short.
    pub(super) fn contain(&self, model: u32, bytes: usize) -> bool {
        self.bytes.get(&model).is_some_and(|&short| bytes <= short)
    }

    /// Notes the time of a batch. One that was not `completed` would have taken longer, so it can only show that batches of
    /// its size are not short.
    pub(super) fn ran(&mut self, model: u32, bytes: usize, time: Duration, completed: bool) {
        let known = self.bytes.get(&model).copied();
        if time > self.time_max {
            if known.is_some_and(|known| bytes <= known) {
                match bytes.checked_sub(1) {
                    Some(smaller) => self.bytes.insert(model, smaller),
                    None => self.bytes.remove(&model),
                };
            }
        } else if completed && !self.time_max.is_zero() {
            self.bytes.insert(model, known.unwrap_or_default().max(bytes));
        }
    }

    /// Forgets a model that has another session from now on, or none.
    pub(super) fn forget(&mut self, model: u32) {
        self.bytes.remove(&model);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest known short batch after batches of these bytes took these microseconds.
    fn largest(batches: &[(usize, u64, bool)]) -> Option<usize> {
        let mut short = ShortBatches::within(Duration::from_micros(100));
        for &(bytes, micros, completed) in batches {
            short.ran(7, bytes, Duration::from_micros(micros), completed);
        }
        assert!(!short.contain(8, 0), "nothing is known about another model");
        (0..200).filter(|&bytes| short.contain(7, bytes)).max()
    }

    #[test]
    fn a_model_that_becomes_slow_is_no_longer_short_at_that_size() {
        assert_eq!(largest(&[(10, 101, true)]), None);
        assert_eq!(largest(&[(10, 20, true), (40, 100, true), (20, 30, true)]), Some(40));
        assert_eq!(
            largest(&[(40, 100, true), (80, 200, true)]),
            Some(40),
            "a larger one says nothing about it"
        );
        assert_eq!(largest(&[(40, 100, true), (20, 101, true)]), Some(19));
        assert_eq!(
            largest(&[(40, 100, true), (20, 101, true), (40, 90, true)]),
            Some(40),
            "it is short again"
        );
        assert_eq!(largest(&[(0, 100, true), (0, 101, true)]), None, "a model without inputs");
    }

    #[test]
    fn a_batch_that_ended_early_shows_no_more_than_that_it_was_long() {
        assert_eq!(largest(&[(10, 1, false)]), None);
        assert_eq!(largest(&[(40, 100, true), (80, 1, false)]), Some(40));
        assert_eq!(largest(&[(40, 100, true), (20, 101, false)]), Some(19));
    }

    #[test]
    fn without_a_time_no_batch_is_short() {
        let mut none = ShortBatches::within(Duration::ZERO);
        none.ran(7, 10, Duration::ZERO, true);
        assert!(!none.contain(7, 10));
    }
}
