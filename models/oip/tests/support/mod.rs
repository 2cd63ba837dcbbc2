//! What the fuzz tests share: mutations of samples, and a measure of the memory that a call allocates.

#![expect(
    unsafe_code,
    clippy::indexing_slicing,
    reason = "a test: an allocator that counts, and edits within bounds"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;

/// The same cases at every run.
pub fn fixed(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A change to a sample.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Replace a byte.
    Byte(Index, u8),
    /// Insert a token of the format.
    Insert(Index, Index),
    /// Remove a range.
    Remove(Index, usize),
    /// Copy a range to another place, this many times.
    Copy(Index, usize, Index, u8),
    /// Replace one token of the format by another where it first occurs after a position.
    Swap(Index, Index, Index),
    /// Drop the rest.
    Truncate(Index),
}

/// A few edits.
pub fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let index = any::<Index>;
    let edit = prop_oneof![
        (index(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (index(), index()).prop_map(|(at, token)| Edit::Insert(at, token)),
        (index(), 1_usize..40).prop_map(|(at, length)| Edit::Remove(at, length)),
        (index(), 1_usize..80, index(), 1_u8..20)
            .prop_map(|(from, n, to, times)| Edit::Copy(from, n, to, times)),
        (index(), index(), index()).prop_map(|(at, old, new)| Edit::Swap(at, old, new)),
        index().prop_map(Edit::Truncate),
    ];
    prop::collection::vec(edit, 0..5)
}

/// The sample with these edits; `tokens` are words of its format.
pub fn mutate(sample: &[u8], edits: &[Edit], tokens: &[&[u8]]) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for edit in edits {
        let at = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
        match edit {
            Edit::Byte(index, byte) => {
                let at = at(index, &bytes);
                bytes.splice(at..(at + 1).min(bytes.len()), [*byte]);
            }
            Edit::Insert(index, token) => {
                let at = at(index, &bytes);
                bytes.splice(at..at, tokens[token.index(tokens.len())].iter().copied());
            }
            Edit::Remove(index, length) => {
                let at = at(index, &bytes);
                bytes.drain(at..(at + length).min(bytes.len()));
            }
            Edit::Copy(from, length, to, times) => {
                let (from, to) = (at(from, &bytes), at(to, &bytes));
                let copied = bytes[from..(from + length).min(bytes.len())].repeat(usize::from(*times));
                bytes.splice(to..to, copied);
            }
            Edit::Swap(index, old, new) => {
                let (from, old) = (at(index, &bytes), tokens[old.index(tokens.len())]);
                let found = bytes[from..].windows(old.len()).position(|window| window == old);
                if let Some(offset) = found {
                    let start = from + offset;
                    bytes.splice(start..start + old.len(), tokens[new.index(tokens.len())].iter().copied());
                }
            }
            Edit::Truncate(index) => bytes.truncate(index.index(bytes.len() + 1)),
        }
    }
    bytes
}

/// Runs `call` and gives its result with the most bytes that it had allocated at once on this thread.
pub fn peak<T>(call: impl FnOnce() -> T) -> (T, usize) {
    NOW.set(0);
    PEAK.set(0);
    let result = call();
    (result, usize::try_from(PEAK.get()).unwrap_or(0))
}

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as the caller vouches.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as the caller vouches.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new block exist at once while the content is copied.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as the caller vouches.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
