//! What a batch can wait for where gpulets of one device are not kept apart: batches of the others, and their being made
//! ready.
//!
//! Two things hold up a batch that is no slower than ever. Where units are nobody's own (`cuda-stream`, `cuda-mps`), a
//! batch of every other gpulet can be before it. And whatever the device is, one process that has all of its gpulets may
//! stall them all while it makes a session or runs it for the first time: drivers synchronise the device for that.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The gpulets of a device.
pub(crate) struct Neighbourhood {
    /// Whether batches of one gpulet can wait for those of another.
    queues: bool,
    /// Nanoseconds of the longest batch of each gpulet.
    longest: Mutex<Vec<Weak<AtomicU64>>>,
    /// Sessions that are being made ready.
    preparing: AtomicUsize,
    /// Sessions that began to be.
    begun: AtomicU64,
}

impl Neighbourhood {
    pub fn new(queues: bool) -> Arc<Self> {
        let (preparing, begun) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Self { queues, longest: Mutex::default(), preparing, begun })
    }

    /// Another gpulet.
    pub fn join(self: &Arc<Self>) -> Neighbour {
        let longest = Arc::new(AtomicU64::new(0));
        let mut all = self.all();
        all.retain(|gone| gone.strong_count() > 0);
        all.push(Arc::downgrade(&longest));
        drop(all);
        Neighbour { neighbourhood: Arc::clone(self), longest }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        self.longest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gpulet among others.
pub(crate) struct Neighbour {
    neighbourhood: Arc<Neighbourhood>,
    longest: Arc<AtomicU64>,
}

impl Neighbour {
    /// A batch of it is expected to take so long.
    pub fn expects(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Time of the batches that can be before one of its own: the longest one of each other gpulet.
    pub fn before(&self) -> Duration {
        if !self.neighbourhood.queues {
            return Duration::ZERO;
        }
        let all = self.neighbourhood.all();
        let others = all.iter().filter_map(Weak::upgrade).filter(|other| !Arc::ptr_eq(other, &self.longest));
        let nanos = others.map(|other| other.load(Ordering::Relaxed)).fold(0, u64::saturating_add);
        Duration::from_nanos(nanos)
    }

    /// From now on a session is made ready, until the answer is dropped.
    pub fn prepares(&self) -> Preparing {
        self.neighbourhood.begun.fetch_add(1, Ordering::Relaxed);
        self.neighbourhood.preparing.fetch_add(1, Ordering::Relaxed);
        Preparing(Arc::clone(&self.neighbourhood))
    }

    /// For telling later whether a session was made ready since.
    pub fn preparations(&self) -> Preparations {
        Preparations(self.neighbourhood.begun.load(Ordering::Relaxed))
    }

    /// Whether some session was being made ready at some time since then.
    pub fn prepared_since(&self, then: Preparations) -> bool {
        self.neighbourhood.preparing.load(Ordering::Relaxed) > 0 || self.preparations() != then
    }
}

/// Sessions that had begun to be made ready at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preparations(u64);

/// A session is being made ready.
pub(crate) struct Preparing(Arc<Neighbourhood>);

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
    fn the_longest_batch_of_every_other_gpulet_can_be_before_one() {
        let neighbourhood = Neighbourhood::new(true);
        let [one, two, three] = [(); 3].map(|()| neighbourhood.join());
        for (gpulet, times) in [(&one, [5, 3]), (&two, [20, 7]), (&three, [1, 40])] {
            times.into_iter().for_each(|time| gpulet.expects(millis(time)));
        }
        assert_eq!([&one, &two, &three].map(Neighbour::before), [millis(60), millis(45), millis(25)]);
        drop(two);
        assert_eq!(one.before(), millis(40), "one that is closed runs nothing");
    }

    #[test]
    fn gpulets_with_units_of_their_own_wait_for_no_batch() {
        let neighbourhood = Neighbourhood::new(false);
        let (one, two) = (neighbourhood.join(), neighbourhood.join());
        two.expects(millis(40));
        assert_eq!(one.before(), Duration::ZERO);
    }

    #[test]
    fn preparations_are_seen_also_when_they_are_over() {
        let neighbourhood = Neighbourhood::new(false);
        let (one, two) = (neighbourhood.join(), neighbourhood.join());
        let before = one.preparations();
        assert!(!one.prepared_since(before));
        let preparing = two.prepares();
        let meanwhile = one.preparations();
        assert!(one.prepared_since(before) && one.prepared_since(meanwhile));
        drop(preparing);
        assert!(one.prepared_since(before) && !one.prepared_since(meanwhile));
    }
}
