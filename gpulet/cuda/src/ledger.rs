//! The memory ledger of a device: the only thing that keeps gpulets from taking each other's memory.
//!
//! The device's memory holds what was in use before the first model (contexts, libraries, other processes), the weights
//! of every model once, an arena per session, and a reserve. Weights count once while sessions share them. Whether they
//! do is measured when the second session of a model is loaded: if it takes a tenth of the weights or more, they count
//! per session from then on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use models::{ContentHash, ModelFiles};
use serde::Serialize;

/// Minimum reserve, in bytes.
const RESERVE_MIN: u64 = 1 << 30;
/// The reserve is the total divided by this.
const RESERVE_PART: u64 = 20;
/// The second session of a model shares its weights if it takes less than the weights divided by this.
const UNSHARED_PART: u64 = 10;

/// Device memory that a session is expected to take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Weights, once per model.
    pub weights: u64,
    /// Working memory of one session at its largest batch.
    pub arena: u64,
}

/// The memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// All of it.
    pub total: u64,
    /// In use before the first model was loaded.
    pub base: u64,
    /// Kept free: a twentieth of the total, at least 1 GiB.
    pub reserve: u64,
}

impl Budget {
    /// The budget of a device with `total` bytes, of which `free` are free before the first model is loaded.
    pub fn new(total: u64, free: u64) -> Self {
        let reserve = (total / RESERVE_PART).max(RESERVE_MIN);
        Self { total, base: total.saturating_sub(free), reserve }
    }

    /// Bytes available to models.
    pub fn usable(self) -> u64 {
        self.total.saturating_sub(self.base).saturating_sub(self.reserve)
    }
}

/// The state of a ledger, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryState {
    /// The device's total.
    pub total: u64,
    /// In use before the first model.
    pub base: u64,
    /// Weights: once per model, or once per session where sessions do not share them.
    pub weights: u64,
    /// What sessions take in addition to weights.
    pub arenas: u64,
    /// Kept free.
    pub reserve: u64,
    /// Models whose sessions do not share their weights.
    pub unshared: Vec<String>,
}

/// A session does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "model `{model}`: needs {}, and {} of {} on the device are available (in use before: {}, weights: {}, arenas: {}, \
      reserve: {})",
    size(*.needed), size(*.left), size(.state.total), size(.state.base), size(.state.weights), size(.state.arenas),
    size(.state.reserve)
)]
pub struct MemoryRefusal {
    /// The model's name.
    pub model: String,
    /// Bytes that it needs in addition to what is counted already.
    pub needed: u64,
    /// Bytes that are still available to models.
    pub left: u64,
    /// The ledger.
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

/// Counts the memory that sessions take.
pub struct Ledger {
    budget: Budget,
    held: Mutex<Held>,
}

impl Ledger {
    /// The ledger of a device that holds no model yet.
    pub fn new(budget: Budget) -> Arc<Self> {
        Arc::new(Self { budget, held: Mutex::default() })
    }

    /// The memory of the device.
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

    /// The current state.
    pub fn state(&self) -> MemoryState {
        self.state_of(&self.held())
    }

    /// Enters a session, which counts until the lease is dropped.
    ///
    /// # Errors
    /// The session does not fit.
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

/// A session in the ledger.
pub struct Lease {
    ledger: Arc<Ledger>,
    key: Key,
    arena: u64,
    first: bool,
}

impl Lease {
    /// Corrects the ledger by the growth of the device's memory while the session was made. If the first session of a
    /// model grows beyond the weights, the excess is its arena. A later session that takes a tenth of the weights or more
    /// does not share them. Returns whether this was found now.
    pub fn measured(&mut self, growth: u64) -> bool {
        let mut held = self.ledger.held();
        let Some(weights) = held.weights.get_mut(&self.key) else { return false };
        let beyond = growth.saturating_sub(weights.bytes);
        let found_unshared = !self.first && weights.shared && growth > weights.bytes / UNSHARED_PART;
        if found_unshared {
            weights.shared = false;
        }
        let arena = match self.first || !weights.shared {
            true => self.arena.max(beyond),
            false => self.arena.max(growth),
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

    /// 80 GiB, of which 2 are in use and 4 are the reserve.
    fn ledger() -> Arc<Ledger> {
        Ledger::new(Budget::new(80 * GIB, 78 * GIB))
    }

    #[test]
    fn the_reserve_is_at_least_one_gibibyte() {
        assert_eq!(Budget::new(8 * GIB, 8 * GIB).usable(), 7 * GIB);
        assert_eq!(Budget::new(80 * GIB, 78 * GIB).usable(), 74 * GIB);
    }

    #[test]
    fn weights_count_once_and_arenas_per_session() {
        let ledger = ledger();
        let first = ledger.admit(&model("a"), need(20, 1)).unwrap();
        let second = ledger.admit(&model("a"), need(20, 1)).unwrap();
        let _other = ledger.admit(&model("b"), need(10, 2)).unwrap();
        assert_eq!((ledger.state().weights, ledger.state().arenas), (30 * GIB, 4 * GIB));
        drop(first);
        assert_eq!((ledger.state().weights, ledger.state().arenas), (30 * GIB, 3 * GIB));
        drop(second);
        assert_eq!((ledger.state().weights, ledger.state().arenas), (10 * GIB, 2 * GIB));
    }

    #[test]
    fn a_model_that_does_not_fit_is_refused_with_the_state_of_the_ledger() {
        let ledger = ledger();
        let _large = ledger.admit(&model("a"), need(70, 2)).unwrap();
        let refused = ledger.admit(&model("b"), need(2, 1)).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "model `b`: needs 3072 MiB, and 2048 MiB of 81920 MiB on the device are available (in use before: 2048 MiB, \
             weights: 71680 MiB, arenas: 2048 MiB, reserve: 4096 MiB)"
        );
        assert_eq!(ledger.state().weights, 70 * GIB, "a refused model does not count");
        assert!(ledger.admit(&model("a"), need(70, 2)).is_ok(), "its weights are loaded already");
    }

    #[test]
    fn a_second_session_with_its_own_weights_is_detected_and_counted() {
        let ledger = ledger();
        let mut first = ledger.admit(&model("a"), need(10, 0)).unwrap();
        assert!(!first.measured(12 * GIB));
        assert_eq!(ledger.state().arenas, 2 * GIB);
        let mut second = ledger.admit(&model("a"), need(10, 0)).unwrap();
        assert!(!second.measured(GIB / 2), "half a gibibyte cannot be another copy of ten");
        drop(second);
        let mut second = ledger.admit(&model("a"), need(10, 0)).unwrap();
        assert!(second.measured(11 * GIB));
        let state = ledger.state();
        assert_eq!((state.weights, state.arenas, state.unshared), (20 * GIB, 3 * GIB, vec!["a".to_owned()]));
        drop(first);
        assert_eq!(ledger.state().weights, 10 * GIB);
        drop(second);
        assert_eq!((ledger.state().weights, ledger.state().arenas), (0, 0));
    }
}
