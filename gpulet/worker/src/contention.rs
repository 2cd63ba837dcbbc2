//! How co-located gpulets of one device delay each other.
//!
//! Two things delay a batch that runs no slower than usual. Where gpulets share units (`cuda-stream`, `cuda-mps`), one
//! batch of every other gpulet can be ahead of it. And a process that has all gpulets of a device may stall them while
//! it loads a session or runs one for the first time, because drivers synchronise the device for that.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// What the gpulets of one device know of each other.
pub(crate) struct Contention {
    /// Whether batches of one gpulet can wait for those of another.
    shares_units: bool,
    /// Nanoseconds of the longest batch of each gpulet.
    longest: Mutex<Vec<Weak<AtomicU64>>>,
    /// Preparations of sessions that are under way.
    preparing: AtomicUsize,
    /// Preparations that have started so far.
    started: AtomicU64,
}

impl Contention {
    pub fn new(shares_units: bool) -> Arc<Self> {
        let (preparing, started) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Self { shares_units, longest: Mutex::default(), preparing, started })
    }

    /// Adds a gpulet, until the result is dropped.
    pub fn join(self: &Arc<Self>) -> CoLocated {
        let longest = Arc::new(AtomicU64::new(0));
        let mut all = self.all();
        all.retain(|gpulet| gpulet.strong_count() > 0);
        all.push(Arc::downgrade(&longest));
        drop(all);
        CoLocated { contention: Arc::clone(self), longest }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        self.longest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the gpulets.
pub(crate) struct CoLocated {
    contention: Arc<Contention>,
    longest: Arc<AtomicU64>,
}

impl CoLocated {
    /// Records how long one of its batches is expected to take.
    pub fn expect(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Time of the batches that can be ahead of one of its own: the longest one of each other gpulet.
    pub fn ahead(&self) -> Duration {
        if !self.contention.shares_units {
            return Duration::ZERO;
        }
        let all = self.contention.all();
        let others = all.iter().filter_map(Weak::upgrade).filter(|other| !Arc::ptr_eq(other, &self.longest));
        let nanos = others.map(|other| other.load(Ordering::Relaxed)).fold(0, u64::saturating_add);
        Duration::from_nanos(nanos)
    }

    /// Records that a session is being prepared, until the result is dropped.
    pub fn prepare(&self) -> Preparing {
        self.contention.started.fetch_add(1, Ordering::Relaxed);
        self.contention.preparing.fetch_add(1, Ordering::Relaxed);
        Preparing(Arc::clone(&self.contention))
    }

    /// The preparations that have started so far, for [`prepared_since`](Self::prepared_since).
    pub fn preparations(&self) -> Preparations {
        Preparations(self.contention.started.load(Ordering::Relaxed))
    }

    /// Whether any session was being prepared at some time since `then`.
    pub fn prepared_since(&self, then: Preparations) -> bool {
        self.contention.preparing.load(Ordering::Relaxed) > 0 || self.preparations() != then
    }
}

/// The number of preparations that had started at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preparations(u64);

/// A session is being prepared.
pub(crate) struct Preparing(Arc<Contention>);

impl Drop for Preparing {
    fn drop(&mut self) {
        self.0.preparing.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_longest_batch_of_every_other_gpulet_can_be_ahead() {
        let contention = Contention::new(true);
        let [one, two, three] = [(); 3].map(|()| contention.join());
        for (gpulet, times) in [(&one, [5, 3]), (&two, [20, 7]), (&three, [1, 40])] {
            times.into_iter().for_each(|time| gpulet.expect(millis(time)));
        }
        assert_eq!([&one, &two, &three].map(CoLocated::ahead), [millis(60), millis(45), millis(25)]);
        drop(two);
        assert_eq!(one.ahead(), millis(40), "a closed gpulet runs no batches");
    }

    #[test]
    fn gpulets_with_exclusive_units_wait_for_no_batch() {
        let contention = Contention::new(false);
        let (one, two) = (contention.join(), contention.join());
        two.expect(millis(40));
        assert_eq!(one.ahead(), Duration::ZERO);
    }

    #[test]
    fn a_preparation_that_has_ended_is_seen_too() {
        let contention = Contention::new(false);
        let (one, two) = (contention.join(), contention.join());
        let before = one.preparations();
        assert!(!one.prepared_since(before));
        let preparing = two.prepare();
        let during = one.preparations();
        assert!(one.prepared_since(before) && one.prepared_since(during));
        drop(preparing);
        assert!(one.prepared_since(before) && !one.prepared_since(during));
    }
}
