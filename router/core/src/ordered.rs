//! A sequence in ascending order that is read by position and nearly always changes at its ends: waiting requests
//! by deadline, busy lanes by end.

use std::collections::VecDeque;

/// What an item is ordered by; no two items of a sequence have equal keys.
pub(crate) trait Keyed {
    type Key: Ord + Copy;
    fn key(&self) -> Self::Key;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ordered<T>(VecDeque<T>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Keyed> Ordered<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.0.front()
    }

    pub(crate) fn get(&self, position: usize) -> Option<&T> {
        self.0.get(position)
    }

    pub(crate) fn iter(&self) -> std::collections::vec_deque::Iter<'_, T> {
        self.0.iter()
    }

    /// The first position whose key is not below `key`.
    pub(crate) fn position(&self, key: T::Key) -> usize {
        self.0.partition_point(|item| item.key() < key)
    }

    pub(crate) fn insert(&mut self, item: T) {
        let key = item.key();
        if self.0.back().is_none_or(|last| last.key() < key) {
            self.0.push_back(item);
        } else {
            let position = self.0.partition_point(|other| other.key() < key);
            self.0.insert(position, item);
        }
    }

    pub(crate) fn remove(&mut self, key: T::Key) -> Option<T> {
        if self.0.front().is_some_and(|first| first.key() == key) {
            return self.0.pop_front();
        }
        let position = self.0.binary_search_by_key(&key, Keyed::key).ok()?;
        self.0.remove(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    impl Keyed for u32 {
        type Key = Self;
        fn key(&self) -> Self {
            *self
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_set(steps in prop::collection::vec((0_u32..60, prop::bool::ANY), 0..300)) {
            let (mut ordered, mut naive) = (Ordered::default(), BTreeSet::new());
            for (item, add) in steps {
                if !add {
                    prop_assert_eq!(ordered.remove(item).is_some(), naive.remove(&item));
                } else if naive.insert(item) {
                    ordered.insert(item);
                }
                prop_assert_eq!(ordered.first(), naive.first());
                prop_assert!(ordered.iter().eq(naive.iter()));
                prop_assert_eq!(ordered.get(2), naive.iter().nth(2));
            }
        }
    }
}
