//! Keeps the cache within its limit.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::cache::Cache;
use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::Manifest;
use crate::publication::remove_folder;

/// Manifests that are kept: content of older snapshots is recognized with them.
const MANIFESTS_MAX: usize = 4;

/// What was removed, and what is left, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub bytes_evicted: u64,
    pub bytes_cached: u64,
}

/// What must stay.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    /// The current snapshot.
    pub current: Option<Arc<Manifest>>,
    /// Content that the next snapshot will use.
    pub digests: BTreeSet<Digest>,
    /// Names of downloads that the next snapshot will use.
    pub parts: BTreeSet<String>,
}

/// Removes snapshots that no reader holds, then content that no snapshot uses until `bytes_max` is met, least recently used first.
/// The caller holds the lock of the cache.
pub(crate) fn evict(cache: &Cache, keep: &Keep, bytes_max: u64) -> Result<Evicted, Error> {
    let id = keep.current.as_deref().map(Manifest::id).unwrap_or_default();
    let failed = |folder: &Path, error: io::Error| Error::cache(folder, &error);
    let held = remove_snapshots(cache, &id).map_err(|error| failed(&cache.snapshots(), error))?;
    remove_manifests(cache, &held).map_err(|error| failed(&cache.manifests(), error))?;
    let parts = remove_parts(cache, &keep.parts).map_err(|error| failed(&cache.parts(), error))?;
    let used = used(cache, keep, &held);
    let blobs = cache.blobs().list().map_err(|error| failed(cache.blobs().folder(), error))?;
    let mut evicted =
        Evicted { bytes_evicted: 0, bytes_cached: parts + blobs.iter().map(|blob| blob.bytes).sum::<u64>() };
    for blob in blobs.iter().filter(|blob| !used.contains(&blob.digest)) {
        if evicted.bytes_cached <= bytes_max {
            break;
        }
        cache.blobs().remove(blob.digest).map_err(|error| failed(cache.blobs().folder(), error))?;
        evicted.bytes_evicted += blob.bytes;
        evicted.bytes_cached -= blob.bytes;
    }
    Ok(evicted)
}

/// Content of the current snapshot and of those that a reader holds.
fn used(cache: &Cache, keep: &Keep, held: &BTreeSet<String>) -> BTreeSet<Digest> {
    let mut used = keep.digests.clone();
    let held: Vec<_> = held.iter().filter_map(|id| cache.manifest(id)).collect();
    let manifests = held.iter().chain(keep.current.as_deref());
    used.extend(manifests.flat_map(|manifest| manifest.objects.values()).map(|entry| entry.digest));
    used
}

/// Removes every snapshot that is neither current nor held. Returns the identifiers of those that are left.
fn remove_snapshots(cache: &Cache, current: &str) -> io::Result<BTreeSet<String>> {
    let mut held = BTreeSet::from([current.to_owned()]);
    for entry in fs::read_dir(cache.snapshots())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if name == current {
            continue;
        }
        if name.ends_with(".tmp") {
            remove_folder(&path)?;
            continue;
        }
        let folder = File::open(&path)?;
        if folder.try_lock().is_err() {
            held.insert(name);
            continue;
        }
        // Renamed first, so that a reader sees the whole folder or none.
        let removed = path.with_extension("tmp");
        fs::rename(&path, &removed)?;
        drop(folder);
        remove_folder(&removed)?;
    }
    Ok(held)
}

/// Removes the oldest manifests of removed snapshots.
fn remove_manifests(cache: &Cache, held: &BTreeSet<String>) -> io::Result<()> {
    let mut old = Vec::new();
    for entry in fs::read_dir(cache.manifests())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_held = name.strip_suffix(".json").is_some_and(|id| held.contains(id));
        if !is_held {
            old.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    old.sort();
    let surplus = old.len().saturating_sub(MANIFESTS_MAX);
    old.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
}

/// Removes what is left of downloads that are no longer needed. Returns the bytes of those that are.
fn remove_parts(cache: &Cache, keep: &BTreeSet<String>) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(cache.parts())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let stem = name.split('.').next().unwrap_or_default();
        if keep.contains(stem) {
            bytes += if name.ends_with(".part") { entry.metadata()?.len() } else { 0 };
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(bytes)
}
