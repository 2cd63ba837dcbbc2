//! The rows of one job: which are to be sent, in flight, done and committed.

use std::collections::BTreeSet;
use std::ops::Range;

/// Rows that may be ahead of the first one without a result, in windows. Their results wait in memory.
const AHEAD: u64 = 4;

#[derive(Clone, Debug)]
pub(super) struct Rows {
    all: u64,
    /// The first row that was never sent.
    next: u64,
    /// Rows that were refused, to be sent again.
    returned: BTreeSet<u64>,
    in_flight: BTreeSet<u64>,
    /// Rows before this one have results.
    done: u64,
    committed: u64,
}

impl Rows {
    pub fn new(all: u64, committed: u64) -> Self {
        let committed = committed.min(all);
        Self {
            all,
            next: committed,
            returned: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            done: committed,
            committed,
        }
    }

    pub fn done(&self) -> u64 {
        self.done
    }

    pub fn left(&self) -> u64 {
        self.all.saturating_sub(self.done)
    }

    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX)
    }

    pub fn uncommitted(&self) -> u64 {
        self.done.saturating_sub(self.committed)
    }

    pub fn commit(&mut self) {
        self.committed = self.done;
    }

    /// Whether as many rows are in flight as the window allows.
    pub fn is_full(&self, window: u32) -> bool {
        window > 0 && self.in_flight() >= window
    }

    /// The next row that can be sent, which is in flight then.
    pub fn take_next(&mut self, window: u32) -> Option<u64> {
        if self.in_flight() >= window {
            return None;
        }
        let ahead = u64::from(window).saturating_mul(AHEAD);
        let row = match self.returned.pop_first() {
            Some(row) => row,
            None if self.next < self.all && self.next.saturating_sub(self.done) < ahead => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.in_flight.insert(row);
        Some(row)
    }

    pub fn returned(&mut self, row: u64) {
        if self.in_flight.remove(&row) {
            self.returned.insert(row);
        } else {
            invariant::violated!("jobs.refused_row_not_in_flight");
        }
    }

    /// A row has its result. Returns the rows whose results can be appended now.
    pub fn done_with(&mut self, row: u64) -> Range<u64> {
        if !self.in_flight.remove(&row) {
            invariant::violated!("jobs.row_not_in_flight");
            return self.done..self.done;
        }
        let before = self.done;
        let waiting = self.in_flight.first().copied().into_iter().chain(self.returned.first().copied()).min();
        self.done = waiting.unwrap_or(self.next);
        before..self.done
    }
}
