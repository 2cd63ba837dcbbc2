//! One timer for each of some items, the earliest first.

use crate::Nanos;
use crate::heap::{Heap, Positions};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timers {
    heap: Heap<Nanos>,
    positions: Positions,
}

impl Timers {
    /// Sets the timer of an item; `NEVER` removes it.
    pub(crate) fn set(&mut self, item: u32, at: Nanos) {
        if at == Nanos::NEVER {
            self.heap.remove(item, &mut self.positions);
        } else {
            self.heap.insert(at, item, &mut self.positions);
        }
    }

    /// Sets the timer of an item, unless it is due earlier.
    pub(crate) fn bring_forward(&mut self, item: u32, at: Nanos) {
        if self.heap.key_of(item, &self.positions).is_none_or(|known| at < known) {
            self.set(item, at);
        }
    }

    /// When the first timer is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.first().map(|(at, _)| at)
    }

    /// Removes the first timer if it is due, and returns its item.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<u32> {
        let (_, item) = self.heap.first().filter(|(at, _)| *at <= now)?;
        self.heap.remove(item, &mut self.positions);
        Some(item)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}
