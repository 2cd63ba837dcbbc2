//! Answers of earlier requests, for models whose `config.pbtxt` enables `response_cache`.
//!
//! An entry belongs to one loaded version: a reload with changed files or settings starts without entries. The least recently
//! used entries are dropped when the bytes exceed `cache.max_bytes`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lru::LruCache;
use metrics::{Counter, Gauge};
use models::engine::Response;
use oip::{Parameter, Parameters, Tensor};
use sha2::{Digest as _, Sha256};

use crate::metrics::names;

/// Bytes that an entry takes besides its elements, names and shapes, estimated.
const ENTRY_BYTES: u64 = 256;
/// Bytes that a response parameter takes, estimated.
const PARAMETER_BYTES: u64 = 128;
/// Inputs larger than this are hashed off the async threads.
const INLINE_BYTES: usize = 256 * 1024;
/// Parameters that say when a request runs, and not what it computes.
const SCHEDULING: [&str; 2] = ["timeout", "priority"];

/// What a request asks of one loaded version, hashed. No client can choose inputs that collide with those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    load: u64,
    digest: [u8; 32],
}

struct Entry {
    response: Response,
    bytes: u64,
}

struct Entries {
    by_key: LruCache<CacheKey, Entry>,
    bytes: u64,
}

/// The answers, bounded by bytes. Shared by all models.
pub struct ResponseCache {
    entries: Mutex<Entries>,
    max_bytes: u64,
    bytes: Gauge,
    count: Gauge,
    evictions: Counter,
}

impl ResponseCache {
    /// An empty cache of at most `max_bytes` bytes; 0: no cache.
    pub fn new(max_bytes: u64) -> Self {
        Self {
            entries: Mutex::new(Entries { by_key: LruCache::unbounded(), bytes: 0 }),
            max_bytes,
            bytes: metrics::gauge!(names::CACHE_BYTES.name),
            count: metrics::gauge!(names::CACHE_ENTRIES.name),
            evictions: metrics::counter!(names::CACHE_EVICTIONS.name),
        }
    }

    /// Whether it can hold anything.
    pub fn is_on(&self) -> bool {
        self.max_bytes > 0
    }

    /// The response to an earlier request with this key.
    pub fn get(&self, key: &CacheKey) -> Option<Response> {
        self.lock().by_key.get(key).map(|entry| entry.response.clone())
    }

    /// Remembers a response. One larger than the whole cache is not remembered.
    pub fn insert(&self, key: CacheKey, response: &Response) {
        let sized = |output: &Tensor| output.data.len() + output.name.len() + 8 * output.shape.rank();
        let bytes = ENTRY_BYTES
            .saturating_add(response.outputs.iter().map(sized).sum::<usize>() as u64)
            .saturating_add(PARAMETER_BYTES.saturating_mul(response.parameters.len() as u64));
        if bytes > self.max_bytes {
            return;
        }
        // Copied: a slice would keep the outputs of its whole batch in memory.
        let copied =
            |output: &Tensor| Tensor { data: Bytes::copy_from_slice(&output.data), ..output.clone() };
        let outputs = response.outputs.iter().map(copied).collect();
        let entry = Entry { response: Response { outputs, parameters: response.parameters.clone() }, bytes };
        let mut dropped = Vec::new();
        let mut entries = self.lock();
        entries.bytes = entries.bytes.saturating_add(bytes);
        dropped.extend(entries.by_key.push(key, entry).map(|(_, replaced)| replaced));
        let replaced = dropped.len();
        entries.bytes = entries.bytes.saturating_sub(dropped.iter().map(|entry| entry.bytes).sum());
        while entries.bytes > self.max_bytes
            && let Some((_, oldest)) = entries.by_key.pop_lru()
        {
            entries.bytes = entries.bytes.saturating_sub(oldest.bytes);
            dropped.push(oldest);
        }
        self.show(&entries);
        // Memory is released after the lock.
        drop(entries);
        self.evictions.increment((dropped.len() - replaced) as u64);
    }

    /// Drops the entries of a loaded version.
    pub fn forget(&self, load: u64) {
        let mut entries = self.lock();
        let old: Vec<CacheKey> =
            entries.by_key.iter().map(|(key, _)| *key).filter(|key| key.load == load).collect();
        let dropped: Vec<Entry> = old.iter().filter_map(|key| entries.by_key.pop(key)).collect();
        entries.bytes = entries.bytes.saturating_sub(dropped.iter().map(|entry| entry.bytes).sum());
        self.show(&entries);
        drop(entries);
    }

    fn show(&self, entries: &Entries) {
        self.bytes.set(entries.bytes as f64);
        self.count.set(entries.by_key.len() as f64);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a request: its inputs in signature order, the outputs it names, and its parameters. `None` if the process is
/// ending.
pub async fn key(
    load: u64,
    inputs: &[Option<Tensor>],
    outputs: Vec<String>,
    parameters: &Parameters,
) -> Option<CacheKey> {
    let bytes: usize = inputs.iter().flatten().map(|input| input.data.len()).sum();
    if bytes <= INLINE_BYTES {
        return Some(CacheKey { load, digest: digest(inputs, &outputs, parameters) });
    }
    let (inputs, parameters) = (inputs.to_vec(), parameters.clone());
    let hashed = tokio::task::spawn_blocking(move || digest(&inputs, &outputs, &parameters)).await;
    Some(CacheKey { load, digest: hashed.ok()? })
}

fn digest(inputs: &[Option<Tensor>], outputs: &[String], parameters: &Parameters) -> [u8; 32] {
    let mut hash = Sha256::new();
    // Every part has its length in front, so that different requests cannot give the same bytes.
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    for input in inputs {
        let Some(input) = input else {
            add(b"absent");
            continue;
        };
        add(input.name.as_bytes());
        add(input.datatype.as_str().as_bytes());
        let extents: Vec<u8> = input.shape.extents().iter().flat_map(|extent| extent.to_le_bytes()).collect();
        add(&extents);
        add(&input.data);
    }
    add(b"outputs");
    outputs.iter().for_each(|output| add(output.as_bytes()));
    add(b"parameters");
    let mut kept: Vec<&(String, Parameter)> =
        parameters.iter().filter(|(name, _)| !SCHEDULING.contains(&name.as_str())).collect();
    kept.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (name, value) in kept {
        add(name.as_bytes());
        add(format!("{value:?}").as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::{Datatype, Shape};

    fn tensor(name: &str, shape: &[u64], data: &[u8]) -> Tensor {
        let shape = Shape::from_extents(shape);
        Tensor { name: name.to_owned(), datatype: Datatype::Uint8, shape, data: Bytes::copy_from_slice(data) }
    }

    fn key_of(load: u64, data: u8) -> CacheKey {
        let inputs = [Some(tensor("x", &[1], &[data]))];
        CacheKey { load, digest: digest(&inputs, &[], &Parameters::new()) }
    }

    fn outputs(bytes: usize) -> Response {
        vec![tensor("y", &[bytes as u64], &vec![7; bytes])].into()
    }

    #[test]
    fn requests_that_differ_in_anything_have_different_keys() {
        let inputs = |name, shape: &[u64], data: &[u8]| [Some(tensor(name, shape, data))];
        let none = Parameters::new();
        let timeout = vec![("timeout".to_owned(), Parameter::Int(5))];
        let own = vec![("own".to_owned(), Parameter::Int(5))];
        let base = digest(&inputs("x", &[2], &[1, 2]), &[], &none);
        assert_eq!(base, digest(&inputs("x", &[2], &[1, 2]), &[], &timeout));
        let others = [
            digest(&inputs("y", &[2], &[1, 2]), &[], &none),
            digest(&inputs("x", &[1, 2], &[1, 2]), &[], &none),
            digest(&inputs("x", &[2], &[2, 1]), &[], &none),
            digest(&inputs("x", &[2], &[1, 2]), &["y".to_owned()], &none),
            digest(&inputs("x", &[2], &[1, 2]), &[], &own),
            digest(&[None], &[], &none),
        ];
        for (index, other) in others.iter().enumerate() {
            assert!(*other != base && !others[..index].contains(other), "{index}");
        }
        assert_ne!(key_of(1, 1), key_of(2, 1));
    }

    #[test]
    fn the_least_recently_used_answers_leave_first() {
        let cache = ResponseCache::new(3 * (ENTRY_BYTES + 109));
        for data in 0..3 {
            cache.insert(key_of(1, data), &outputs(100));
        }
        assert_eq!(cache.get(&key_of(1, 0)), Some(outputs(100)));
        cache.insert(key_of(1, 3), &outputs(100));
        let held = |data| cache.get(&key_of(1, data)).is_some();
        assert_eq!([held(0), held(1), held(2), held(3)], [true, false, true, true]);
        // The same answer again replaces itself.
        cache.insert(key_of(1, 3), &outputs(100));
        assert_eq!([held(0), held(2), held(3)], [true, true, true]);
        cache.insert(key_of(1, 9), &outputs(100_000));
        assert!(cache.get(&key_of(1, 9)).is_none() && held(0), "too large for the cache");
    }

    #[test]
    fn a_retired_version_leaves_nothing_behind() {
        let cache = ResponseCache::new(10_000);
        cache.insert(key_of(1, 0), &outputs(10));
        cache.insert(key_of(2, 0), &outputs(10));
        cache.forget(1);
        assert!(cache.get(&key_of(1, 0)).is_none());
        assert!(cache.get(&key_of(2, 0)).is_some());
        assert_eq!(cache.lock().by_key.len(), 1);
    }
}
