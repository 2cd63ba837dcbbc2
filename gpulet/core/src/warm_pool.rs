//! Warm sessions of closed gpulets, kept for later plans in memory that no gpulet takes.
//!
//! A warm session moves to another gpulet of the same size and device type without loading. Loading a session again
//! takes time on the cores that serve, and is the part of a change that delays requests.

use std::collections::VecDeque;

use crate::id::DeviceId;

/// A session that no gpulet runs, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmSession<K, S> {
    /// Device whose memory it takes.
    pub device: DeviceId,
    /// The model that it runs, and where it can run.
    pub key: K,
    /// Rows of the largest batch that it was prepared for.
    pub rows: u32,
    /// Bytes that it takes.
    pub bytes: u64,
    /// The session.
    pub session: S,
}

/// Warm sessions, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmPool<K, S> {
    capacity: usize,
    sessions: VecDeque<WarmSession<K, S>>,
}

impl<K: PartialEq, S> WarmPool<K, S> {
    /// A pool that keeps at most `capacity` sessions.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, sessions: VecDeque::new() }
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether the pool is empty.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Adds a session, and returns those that exceed the capacity, oldest first.
    #[must_use = "returned sessions take memory until they are dropped"]
    pub fn insert(&mut self, warm: WarmSession<K, S>) -> Vec<S> {
        self.sessions.push_back(warm);
        let excess = self.sessions.len().saturating_sub(self.capacity);
        self.sessions.drain(..excess).map(|warm| warm.session).collect()
    }

    /// Takes the session that needs least work to run batches of `rows`: the smallest one that is prepared for as many,
    /// or else the largest.
    pub fn take(&mut self, key: &K, rows: u32) -> Option<WarmSession<K, S>> {
        let fitting = self.sessions.iter().enumerate().filter(|(_, warm)| warm.key == *key);
        let work = |warm: &WarmSession<K, S>| (warm.rows < rows, warm.rows.abs_diff(rows));
        let (at, _) = fitting.min_by_key(|(_, warm)| work(warm))?;
        self.sessions.remove(at)
    }

    /// Bytes that all sessions take.
    pub fn all_bytes(&self) -> u64 {
        self.sessions.iter().fold(0, |sum, warm| sum.saturating_add(warm.bytes))
    }

    /// Bytes that a device's sessions take.
    pub fn bytes(&self, device: &str) -> u64 {
        let of_device = self.sessions.iter().filter(|warm| warm.device == *device);
        of_device.fold(0, |sum, warm| sum.saturating_add(warm.bytes))
    }

    /// Removes sessions until those of a device take at most `bytes`, and returns them, oldest first.
    #[must_use = "returned sessions take memory until they are dropped"]
    pub fn shrink_to(&mut self, device: &str, bytes: u64) -> Vec<S> {
        let mut taken = self.bytes(device);
        self.give_back(|warm| {
            let goes = warm.device == *device && taken > bytes;
            if goes {
                taken = taken.saturating_sub(warm.bytes);
            }
            goes
        })
    }

    /// Removes the sessions whose key matches, and returns them.
    #[must_use = "returned sessions take memory until they are dropped"]
    pub fn remove_where(&mut self, matches: impl Fn(&K) -> bool) -> Vec<S> {
        self.give_back(|warm| matches(&warm.key))
    }

    fn give_back(&mut self, mut goes: impl FnMut(&WarmSession<K, S>) -> bool) -> Vec<S> {
        let (removed, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.sessions).into_iter().partition(|warm| goes(warm));
        self.sessions = kept;
        removed.into_iter().map(|warm| warm.session).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn warm(device: &str, key: u32, rows: u32, bytes: u64, session: u32) -> WarmSession<u32, u32> {
        WarmSession { device: device.into(), key, rows, bytes, session }
    }

    fn pool(capacity: usize, sessions: &[WarmSession<u32, u32>]) -> WarmPool<u32, u32> {
        let mut pool = WarmPool::new(capacity);
        for warm in sessions {
            assert!(pool.insert(warm.clone()).is_empty());
        }
        pool
    }

    #[test]
    fn the_session_that_needs_least_work_is_taken_once() {
        let sessions = [(1, 8, 0), (1, 4, 1), (1, 2, 2), (2, 4, 3)]
            .map(|(key, rows, name)| warm("d", key, rows, 1, name));
        let mut pool = pool(4, &sessions);
        let mut take = |key, rows| pool.take(&key, rows).map(|warm| warm.session);
        assert_eq!([take(1, 3), take(1, 16), take(1, 16), take(1, 1)], [Some(1), Some(0), Some(2), None]);
        assert_eq!(take(2, 1), Some(3));
    }

    #[test]
    fn the_longest_kept_goes_first_when_there_are_too_many() {
        let mut pool = pool(2, &[warm("d", 1, 1, 1, 0), warm("d", 1, 1, 1, 1)]);
        assert_eq!(pool.insert(warm("d", 1, 1, 1, 2)), [0]);
        assert_eq!(WarmPool::new(0).insert(warm("d", 1, 1, 1, 0)), [0]);
    }

    #[test]
    fn sessions_leave_the_memory_that_plans_want_and_no_other_device_pays() {
        let mut pool = pool(
            4,
            &[warm("d", 1, 1, 10, 0), warm("e", 1, 1, 10, 1), warm("d", 2, 1, 10, 2), warm("d", 3, 1, 10, 3)],
        );
        assert!(pool.shrink_to("d", 30).is_empty());
        assert_eq!(pool.shrink_to("d", 15), [0, 2]);
        assert_eq!(pool.shrink_to("d", 0), [3]);
        assert_eq!(pool.remove_where(|key| *key == 1), [1]);
        assert!(pool.is_empty());
    }

    proptest! {
        /// Every session that is kept comes out once, and neither bound is ever passed.
        #[test]
        fn no_session_is_lost_or_given_twice(
            capacity in 0_usize..6,
            moves in prop::collection::vec((0_u8..4, 0_u32..3, 0_u32..5, 0_u64..40), 0..60),
        ) {
            let mut pool = WarmPool::new(capacity);
            let (mut kept, mut out) = (0_u32, Vec::new());
            for (kind, key, rows, bytes) in moves {
                let device = ["d", "e"][usize::from(bytes % 2 == 0)];
                match kind {
                    0 | 1 => {
                        out.extend(pool.insert(warm(device, key, rows, bytes, kept)));
                        kept += 1;
                    }
                    2 => out.extend(pool.take(&key, rows).map(|warm| warm.session)),
                    _ => {
                        out.extend(pool.shrink_to(device, bytes));
                        prop_assert!(pool.bytes(device) <= bytes);
                    }
                }
                prop_assert!(pool.len() <= capacity);
            }
            out.extend(pool.remove_where(|_| true));
            out.sort_unstable();
            prop_assert_eq!(out, (0..kept).collect::<Vec<_>>());
        }
    }
}
