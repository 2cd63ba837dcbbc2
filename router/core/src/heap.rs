//! A binary heap that knows the position of each item, so any item can be removed in O(log n) without allocating. The
//! standard heap cannot remove from the middle, and lazy deletion would keep cancelled requests in memory.

use smallvec::SmallVec;

/// The position of each item by its number. Several heaps can share a table if no item is in two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Positions(Vec<u32>);

const ABSENT: u32 = u32::MAX;

impl Positions {
    fn set(&mut self, item: u32, position: usize) {
        let index = item as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, ABSENT);
        }
        if let Some(entry) = self.0.get_mut(index) {
            *entry = u32::try_from(position).unwrap_or(ABSENT);
        }
    }

    fn clear(&mut self, item: u32) {
        if let Some(entry) = self.0.get_mut(item as usize) {
            *entry = ABSENT;
        }
    }

    fn get(&self, item: u32) -> Option<usize> {
        self.0
            .get(item as usize)
            .copied()
            .filter(|&position| position != ABSENT)
            .map(|position| position as usize)
    }
}

/// Smallest key first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heap<K> {
    items: Vec<(K, u32)>,
}

impl<K: Ord + Copy> Heap<K> {
    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.items.first().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The key of an item that is in this heap.
    pub(crate) fn key_of(&self, item: u32, positions: &Positions) -> Option<K> {
        let entry = self.items.get(positions.get(item)?)?;
        (entry.1 == item).then_some(entry.0)
    }

    /// The `count` smallest items in order.
    pub(crate) fn smallest(&self, count: usize, found: &mut SmallVec<[u32; 8]>) {
        let mut frontier: SmallVec<[usize; 16]> = SmallVec::new();
        if !self.items.is_empty() {
            frontier.push(0);
        }
        while found.len() < count {
            let best = frontier
                .iter()
                .enumerate()
                .reduce(|best, next| if self.less(*next.1, *best.1) { next } else { best });
            let Some((index, &at)) = best else { return };
            frontier.swap_remove(index);
            if let Some((_, item)) = self.items.get(at) {
                found.push(*item);
            }
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.items.len() {
                    frontier.push(child);
                }
            }
        }
    }

    /// Inserts an item, or moves it if it is in this heap already.
    pub(crate) fn insert(&mut self, key: K, item: u32, positions: &mut Positions) {
        match positions.get(item) {
            Some(position) if self.items.get(position).is_some_and(|entry| entry.1 == item) => {
                if let Some(entry) = self.items.get_mut(position).filter(|entry| entry.0 != key) {
                    entry.0 = key;
                    self.settle(position, positions);
                }
            }
            _ => {
                self.items.push((key, item));
                let position = self.items.len() - 1;
                positions.set(item, position);
                self.rise(position, positions);
            }
        }
    }

    /// Removes an item; false if it was not here.
    pub(crate) fn remove(&mut self, item: u32, positions: &mut Positions) -> bool {
        let Some(position) = positions.get(item) else { return false };
        if self.items.get(position).is_none_or(|entry| entry.1 != item) {
            return false;
        }
        self.items.swap_remove(position);
        positions.clear(item);
        if let Some(&(_, moved)) = self.items.get(position) {
            positions.set(moved, position);
            self.settle(position, positions);
        }
        true
    }

    fn settle(&mut self, position: usize, positions: &mut Positions) {
        let position = self.rise(position, positions);
        self.sink(position, positions);
    }

    fn less(&self, left: usize, right: usize) -> bool {
        match (self.items.get(left), self.items.get(right)) {
            (Some(l), Some(r)) => l < r,
            _ => false,
        }
    }

    fn swap(&mut self, left: usize, right: usize, positions: &mut Positions) {
        self.items.swap(left, right);
        for position in [left, right] {
            if let Some(&(_, item)) = self.items.get(position) {
                positions.set(item, position);
            }
        }
    }

    fn rise(&mut self, mut position: usize, positions: &mut Positions) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if !self.less(position, parent) {
                break;
            }
            self.swap(position, parent, positions);
            position = parent;
        }
        position
    }

    fn sink(&mut self, mut position: usize, positions: &mut Positions) {
        loop {
            let left = 2 * position + 1;
            let child = if self.less(left + 1, left) { left + 1 } else { left };
            if !self.less(child, position) {
                return;
            }
            self.swap(child, position, positions);
            position = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map(steps in prop::collection::vec((0_u32..40, 0_u64..1000, 0_u8..3), 0..300)) {
            let (mut heap, mut positions) = (Heap::<u64>::default(), Positions::default());
            let mut naive: BTreeMap<u32, u64> = BTreeMap::new();
            for (item, key, kind) in steps {
                if kind < 2 {
                    heap.insert(key, item, &mut positions);
                    naive.insert(item, key);
                } else {
                    prop_assert_eq!(heap.remove(item, &mut positions), naive.remove(&item).is_some());
                }
                let smallest = naive.iter().map(|(&item, &key)| (key, item)).min();
                prop_assert_eq!(heap.first(), smallest);
                prop_assert_eq!(heap.len(), naive.len());
                let mut sorted: Vec<_> = naive.iter().map(|(&item, &key)| (key, item)).collect();
                sorted.sort_unstable();
                let mut found = SmallVec::new();
                heap.smallest(4, &mut found);
                prop_assert!(found.iter().eq(sorted.iter().take(4).map(|(_, item)| item)));
            }
        }
    }
}
