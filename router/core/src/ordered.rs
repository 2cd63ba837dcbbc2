//! A sequence in ascending order that is read by position and changes mostly at its ends: waiting requests by deadline,
//! busy lanes by expected end.

use std::collections::VecDeque;

/// An item with a key to order it by. No two items of a sequence have equal keys.
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

    /// Takes over the items of another sequence.
    pub(crate) fn absorb(&mut self, other: Self) {
        let both = VecDeque::with_capacity(self.0.len() + other.0.len());
        let mine = std::mem::replace(&mut self.0, both);
        let (mut mine, mut theirs) = (mine.into_iter().peekable(), other.0.into_iter().peekable());
        while let Some(next) = match (mine.peek(), theirs.peek()) {
            (Some(own), Some(other)) if other.key() < own.key() => theirs.next(),
            (Some(_), _) => mine.next(),
            (None, _) => theirs.next(),
        } {
            self.0.push_back(next);
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
        fn two_become_one(left in prop::collection::btree_set(0_u32..90, 0..60), right in prop::collection::btree_set(0_u32..90, 0..60)) {
            let right: BTreeSet<u32> = right.difference(&left).copied().collect();
            let sequence = |items: &BTreeSet<u32>| {
                let mut sequence = Ordered::default();
                items.iter().for_each(|&item| sequence.insert(item));
                sequence
            };
            let mut both = sequence(&left);
            both.absorb(sequence(&right));
            prop_assert!(both.iter().eq(left.union(&right)));
        }

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
