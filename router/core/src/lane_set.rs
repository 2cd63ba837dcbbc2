//! Sets of lanes as bits, with a summary so that the smallest of ten thousand is found in two steps.

use crate::LaneId;

const BITS: u32 = u64::BITS;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneSet {
    words: Vec<u64>,
    /// One bit for each word that is not zero.
    summary: Vec<u64>,
    len: u32,
}

impl LaneSet {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn contains(&self, lane: LaneId) -> bool {
        self.words.get((lane.0 / BITS) as usize).is_some_and(|word| word & (1 << (lane.0 % BITS)) != 0)
    }

    /// Adds a lane; false if it was there.
    pub(crate) fn insert(&mut self, lane: LaneId) -> bool {
        let word = (lane.0 / BITS) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / BITS as usize + 1, 0);
        }
        let added = set(&mut self.words, lane.0, true);
        set(&mut self.summary, lane.0 / BITS, true);
        self.len += u32::from(added);
        added
    }

    /// Removes a lane; false if it was not there.
    pub(crate) fn remove(&mut self, lane: LaneId) -> bool {
        let removed = set(&mut self.words, lane.0, false);
        if removed {
            self.len -= 1;
            if self.words.get((lane.0 / BITS) as usize) == Some(&0) {
                set(&mut self.summary, lane.0 / BITS, false);
            }
        }
        removed
    }

    /// The smallest lane.
    pub(crate) fn first(&self) -> Option<LaneId> {
        let (index, summary) = self.summary.iter().enumerate().find(|(_, summary)| **summary != 0)?;
        let word = u32::try_from(index).ok()? * BITS + summary.trailing_zeros();
        let bits = self.words.get(word as usize)?;
        Some(LaneId(word * BITS + bits.trailing_zeros()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = LaneId> + '_ {
        (0..).zip(&self.words).flat_map(|(word, &bits)| {
            (0..BITS).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| LaneId(word * BITS + bit))
        })
    }
}

/// Sets or clears a bit of an existing word; returns whether it changed.
fn set(words: &mut [u64], bit: u32, to: bool) -> bool {
    let Some(word) = words.get_mut((bit / BITS) as usize) else { return false };
    let mask = 1 << (bit % BITS);
    let before = *word & mask != 0;
    if to {
        *word |= mask
    } else {
        *word &= !mask
    }
    before != to
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(steps in prop::collection::vec((0_u32..9_000, prop::bool::ANY), 0..200)) {
            let (mut set, mut naive) = (LaneSet::default(), BTreeSet::new());
            for (lane, add) in steps {
                let lane = LaneId(lane);
                if add {
                    prop_assert_eq!(set.insert(lane), naive.insert(lane));
                } else {
                    prop_assert_eq!(set.remove(lane), naive.remove(&lane));
                }
                prop_assert_eq!(set.first(), naive.first().copied());
                prop_assert_eq!(set.contains(lane), add);
                prop_assert_eq!(set.len() as usize, naive.len());
            }
            prop_assert!(set.iter().eq(naive));
        }
    }
}
