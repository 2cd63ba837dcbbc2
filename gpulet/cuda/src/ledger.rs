//! Who has how much of a device's memory, in our books: nothing but these keeps gpulets from taking each other's.
//!
//! The device's bytes hold what was taken before the first model (contexts, libraries, other processes), the weights
//! of every model once, an arena for every session, and a reserve. Weights are counted once as long as sessions share
//! them; that they do is measured when the second session of a model is loaded, and a model whose second session
//! takes a tenth of the weights or more is counted for every session from then on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use models::{ContentHash, ModelFiles};
use serde::Serialize;

/// Least reserve, in bytes.
const RESERVE_MIN: u64 = 1 << 30;
/// The reserve is one part of so many of the whole.
const RESERVE_PART: u64 = 20;
/// The second session of a model shares its weights if it takes less than one part of so many of them.
const UNSHARED_PART: u64 = 10;

/// Bytes that a session is expected to take on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Weights: taken once a model.
    pub weights: u64,
    /// Working memory of one session at its largest batch.
    pub arena: u64,
}

/// What a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// All of it.
    pub total: u64,
    /// Taken before the first model was loaded.
    pub base: u64,
    /// Kept free: a twentieth, at least 1 GiB.
    pub reserve: u64,
}

impl Budget {
    /// Of a device with so many bytes, so many of them free before the first model is loaded.
    pub fn new(total: u64, free: u64) -> Self {
        let reserve = (total / RESERVE_PART).max(RESERVE_MIN);
        Self { total, base: total.saturating_sub(free), reserve }
    }

    /// Bytes that models may take.
    pub fn usable(self) -> u64 {
        self.total.saturating_sub(self.base).saturating_sub(self.reserve)
    }
}

/// The books of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryState {
    /// Bytes of the device.
    pub total: u64,
    /// Bytes taken before the first model.
    pub base: u64,
    /// Bytes of weights, each model's once, or once a session where sessions do not share them.
    pub weights: u64,
    /// Bytes of sessions beside their weights.
    pub arenas: u64,
    /// Bytes kept free.
    pub reserve: u64,
    /// Models whose sessions were found not to share their weights.
    pub unshared: Vec<String>,
}

/// A session that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "model `{model}`: needs {} on the device, and {} of {} are left (taken before: {}, weights: {}, arenas: {}, kept \
     free: {})",
    size(*.needed), size(*.left), size(.state.total), size(.state.base), size(.state.weights), size(.state.arenas),
    size(.state.reserve)
)]
pub struct MemoryRefusal {
    /// Model by name.
    pub model: String,
    /// Bytes that it needs beside what is counted already.
    pub needed: u64,
    /// Bytes that models may still take.
    pub left: u64,
    /// The books.
    pub state: MemoryState,
}

fn size(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    model: String,
    version: u64,
    hash: [u8; 32],
}

impl Key {
    fn of(files: &ModelFiles) -> Self {
        let ContentHash(hash) = files.hash;
        Self { model: files.name.to_string(), version: files.version.0, hash }
    }
}

struct Weights {
    bytes: u64,
    sessions: u32,
    shared: bool,
}

impl Weights {
    fn counted(&self) -> u64 {
        if self.shared { self.bytes } else { self.bytes.saturating_mul(u64::from(self.sessions)) }
    }
}

#[derive(Default)]
struct Held {
    weights: BTreeMap<Key, Weights>,
    arenas: u64,
}

/// Keeps the books.
pub struct Ledger {
    budget: Budget,
    held: Mutex<Held>,
}

impl Ledger {
    /// Books of a device that holds no model yet.
    pub fn new(budget: Budget) -> Arc<Self> {
        Arc::new(Self { budget, held: Mutex::default() })
    }

    /// The device's memory.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_of(&self, held: &Held) -> MemoryState {
        let unshared = held.weights.iter().filter(|(_, weights)| !weights.shared);
        MemoryState {
            total: self.budget.total,
            base: self.budget.base,
            weights: held.weights.values().map(Weights::counted).sum(),
            arenas: held.arenas,
            reserve: self.budget.reserve,
            unshared: unshared.map(|(key, _)| key.model.clone()).collect(),
        }
    }

    /// The books as they are.
    pub fn state(&self) -> MemoryState {
        self.state_of(&self.held())
    }

    /// Books a session; it is counted until the lease is dropped.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn admit(self: &Arc<Self>, files: &ModelFiles, need: Need) -> Result<Lease, MemoryRefusal> {
        let key = Key::of(files);
        let mut held = self.held();
        let known = held.weights.get(&key);
        let weights = if known.is_some_and(|weights| weights.shared) { 0 } else { need.weights };
        let needed = weights.saturating_add(need.arena);
        let state = self.state_of(&held);
        let left = self.budget.usable().saturating_sub(state.weights).saturating_sub(state.arenas);
        if needed > left {
            return Err(MemoryRefusal { model: key.model, needed, left, state });
        }
        let first = known.is_none();
        let entry = held.weights.entry(key.clone());
        entry.or_insert(Weights { bytes: need.weights, sessions: 0, shared: true }).sessions += 1;
        held.arenas = held.arenas.saturating_add(need.arena);
        Ok(Lease { ledger: Arc::clone(self), key, arena: need.arena, first })
    }
}

/// A booked session.
pub struct Lease {
    ledger: Arc<Ledger>,
    key: Key,
    arena: u64,
    first: bool,
}

impl Lease {
    /// Corrects the books by what the device's memory really shrank while the session was made. A first session's
    /// growth beyond the weights is its arena; a further one that takes a tenth of the weights or more shares nothing.
    /// Returns whether this session was found not to share weights that it should.
    pub fn measured(&mut self, grown: u64) -> bool {
        let mut held = self.ledger.held();
        let Some(weights) = held.weights.get_mut(&self.key) else { return false };
        let beyond = grown.saturating_sub(weights.bytes);
        let found_unshared = !self.first && weights.shared && grown > weights.bytes / UNSHARED_PART;
        if found_unshared {
            weights.shared = false;
        }
        let arena = match self.first || !weights.shared {
            true => self.arena.max(beyond),
            false => self.arena.max(grown),
        };
        held.arenas = held.arenas.saturating_sub(self.arena).saturating_add(arena);
        self.arena = arena;
        found_unshared
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut held = self.ledger.held();
        held.arenas = held.arenas.saturating_sub(self.arena);
        let left = held.weights.get_mut(&self.key).map(|weights| {
            weights.sessions = weights.sessions.saturating_sub(1);
            weights.sessions
        });
        if left == Some(0) {
            held.weights.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::{Format, ModelName, Version};

    const GIB: u64 = 1 << 30;

    fn model(name: &str) -> ModelFiles {
        ModelFiles::from_bytes(
            ModelName::new(name).unwrap(),
            Version(1),
            Format::Onnx,
            name.as_bytes().to_vec(),
        )
    }

    fn need(weights: u64, arena: u64) -> Need {
        Need { weights: weights * GIB, arena: arena * GIB }
    }

    /// 80 GiB, 2 of them taken, 4 kept free.
    fn books() -> Arc<Ledger> {
        Ledger::new(Budget::new(80 * GIB, 78 * GIB))
    }

    #[test]
    fn a_small_device_keeps_a_whole_gibibyte() {
        assert_eq!(Budget::new(8 * GIB, 8 * GIB).usable(), 7 * GIB);
        assert_eq!(Budget::new(80 * GIB, 78 * GIB).usable(), 74 * GIB);
    }

    #[test]
    fn weights_are_counted_once_and_arenas_each() {
        let books = books();
        let first = books.admit(&model("a"), need(20, 1)).unwrap();
        let second = books.admit(&model("a"), need(20, 1)).unwrap();
        let _other = books.admit(&model("b"), need(10, 2)).unwrap();
        assert_eq!((books.state().weights, books.state().arenas), (30 * GIB, 4 * GIB));
        drop(first);
        assert_eq!((books.state().weights, books.state().arenas), (30 * GIB, 3 * GIB));
        drop(second);
        assert_eq!((books.state().weights, books.state().arenas), (10 * GIB, 2 * GIB));
    }

    #[test]
    fn a_model_that_does_not_fit_is_refused_with_the_books() {
        let books = books();
        let _kept = books.admit(&model("a"), need(70, 2)).unwrap();
        let refused = books.admit(&model("b"), need(2, 1)).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "model `b`: needs 3072 MiB on the device, and 2048 MiB of 81920 MiB are left (taken before: 2048 MiB, \
             weights: 71680 MiB, arenas: 2048 MiB, kept free: 4096 MiB)"
        );
        assert_eq!(books.state().weights, 70 * GIB, "a refused model leaves nothing in the books");
        assert!(books.admit(&model("a"), need(70, 2)).is_ok(), "its weights are there already");
    }

    #[test]
    fn a_second_session_that_takes_its_own_weights_is_found_and_counted() {
        let books = books();
        let mut first = books.admit(&model("a"), need(10, 0)).unwrap();
        assert!(!first.measured(12 * GIB));
        assert_eq!(books.state().arenas, 2 * GIB);
        let mut second = books.admit(&model("a"), need(10, 0)).unwrap();
        assert!(!second.measured(GIB / 2), "half a gibibyte is no second copy of ten");
        drop(second);
        let mut second = books.admit(&model("a"), need(10, 0)).unwrap();
        assert!(second.measured(11 * GIB));
        let state = books.state();
        assert_eq!((state.weights, state.arenas, state.unshared), (20 * GIB, 3 * GIB, vec!["a".to_owned()]));
        drop(first);
        assert_eq!(books.state().weights, 10 * GIB);
        drop(second);
        assert_eq!((books.state().weights, books.state().arenas), (0, 0));
    }
}
