//! What is due, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a time that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A request of a client arrives.
    Arrival(usize),
    /// The host of a client launches the next kernel of the current request.
    Kernel(usize),
    /// The policy asked for this time.
    Wake(u64),
}

/// Due events; those of the same time come in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    added: u64,
}

impl Agenda {
    pub(super) fn push(&mut self, at: u64, due: Due) {
        self.added += 1;
        self.heap.push(Reverse((at, self.added, due)));
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn pop(&mut self) -> Option<Due> {
        self.heap.pop().map(|Reverse((.., due))| due)
    }
}
