//! Bytes that the files of all jobs take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::JobError;

/// A limit on bytes, and how many are in use. Clones share both.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    most: u64,
    used: Arc<AtomicU64>,
}

impl Space {
    pub fn new(most: u64) -> Self {
        Self { most, used: Arc::default() }
    }

    /// Counts bytes of an input, unless they are too many.
    pub fn take(&self, bytes: u64) -> Result<(), JobError> {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.most);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|_| JobError::TooLarge(self.most))
    }

    /// Counts bytes that are there already, however many.
    pub fn count(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Files were removed.
    pub fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}
