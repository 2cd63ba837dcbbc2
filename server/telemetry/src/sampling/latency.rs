//! The latency that 1 % of the recent requests of a model exceed.

use std::collections::VecDeque;
use std::time::Duration;

/// How many requests are recent.
const RECENT: usize = 1000;
/// One in this many requests is slow.
const SLOW_ONE_IN: usize = 100;

/// The latencies of the recent requests of one model, in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    in_order_of_time: VecDeque<u32>,
    sorted: Vec<u32>,
    /// When the last one was added.
    pub(super) used: Duration,
}

impl Latencies {
    /// Adds a latency, and says whether it exceeds the 99th percentile of those before it. The first hundred exceed nothing.
    pub(super) fn add(&mut self, now: Duration, latency: Duration) -> bool {
        self.used = now;
        let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        let is_slow = self.percentile().is_some_and(|percentile| micros > percentile);
        if self.in_order_of_time.len() == RECENT
            && let Some(oldest) = self.in_order_of_time.pop_front()
            && let Ok(place) = self.sorted.binary_search(&oldest)
        {
            self.sorted.remove(place);
        }
        self.in_order_of_time.push_back(micros);
        let place = self.sorted.partition_point(|other| *other < micros);
        self.sorted.insert(place, micros);
        is_slow
    }

    /// The latency that at most 1 % exceed. `None` for fewer than a hundred requests.
    fn percentile(&self) -> Option<u32> {
        let above = self.sorted.len() / SLOW_ONE_IN;
        if above == 0 { None } else { self.sorted.iter().rev().nth(above).copied() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add(latencies: &mut Latencies, millis: u64) -> bool {
        latencies.add(Duration::ZERO, Duration::from_millis(millis))
    }

    #[test]
    fn the_slowest_hundredth_is_slow() {
        let mut latencies = Latencies::default();
        // 1 to 1000 ms in an order without pattern: 617 and 1000 have no common divisor but 1.
        let slow: Vec<u64> = (0..10_000)
            .map(|index| 1 + index * 617 % 1000)
            .filter(|latency| add(&mut latencies, *latency))
            .collect();
        assert!((80..=150).contains(&slow.len()), "{}", slow.len());
        assert!(slow.iter().all(|latency| *latency > 950), "{slow:?}");
    }

    #[test]
    fn equal_latencies_are_not_slow_and_an_outlier_is() {
        let mut latencies = Latencies::default();
        assert!(!add(&mut latencies, 9000));
        assert!((0..1000).all(|_| !add(&mut latencies, 10)));
        assert!(add(&mut latencies, 11));
    }

    #[test]
    fn old_latencies_are_forgotten() {
        let mut latencies = Latencies::default();
        assert!((0..RECENT).all(|_| !add(&mut latencies, 1000)));
        assert!(!add(&mut latencies, 500));
        assert!((0..RECENT).all(|_| !add(&mut latencies, 10)));
        assert!(add(&mut latencies, 500));
        assert_eq!((latencies.in_order_of_time.len(), latencies.sorted.len()), (RECENT, RECENT));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn it_agrees_with_sorting_all(latencies in prop::collection::vec(0..5000u64, 0..1500)) {
            let mut recent = Latencies::default();
            for (index, latency) in latencies.iter().enumerate() {
                let mut before: Vec<u64> = latencies[index.saturating_sub(RECENT)..index].to_vec();
                before.sort_unstable();
                let expected = before.len() >= SLOW_ONE_IN
                    && *latency > before[before.len() - 1 - before.len() / SLOW_ONE_IN];
                prop_assert_eq!(recent.add(Duration::ZERO, Duration::from_micros(*latency)), expected);
            }
        }
    }
}
