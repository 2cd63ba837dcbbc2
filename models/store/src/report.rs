//! What a refresh did, and how far it is.

use serde::Serialize;

/// What one refresh did. Counts are objects; sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RefreshReport {
    /// Identifier of the snapshot that is now current.
    pub snapshot: String,
    /// Objects of the snapshot.
    pub objects: usize,
    /// Bytes of all objects of the snapshot.
    pub bytes: u64,
    /// Objects that the previous snapshot did not have.
    pub added: usize,
    /// Objects whose content differs from the previous snapshot.
    pub changed: usize,
    /// Objects that only the previous snapshot had.
    pub removed: usize,
    /// Bytes that were downloaded.
    pub bytes_downloaded: u64,
    /// Bytes of interrupted downloads that were not downloaded again.
    pub bytes_resumed: u64,
    /// Bytes of objects whose content was in the cache.
    pub bytes_reused: u64,
    /// Bytes that were removed from the cache.
    pub bytes_evicted: u64,
    /// Bytes of content in the cache. Above the limit only while a reader holds an older snapshot.
    pub bytes_cached: u64,
    /// Listings of the source: more than one if objects changed while they were downloaded.
    pub listings: usize,
}

impl RefreshReport {
    /// Whether the new snapshot differs from the previous one.
    pub fn is_change(&self) -> bool {
        self.added + self.changed + self.removed > 0
    }
}

/// How far a refresh is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Objects to download.
    pub objects: usize,
    /// Objects of these that are complete.
    pub objects_done: usize,
    /// Bytes to download, including those that an interrupted download has already.
    pub bytes: u64,
    /// Bytes of these that have arrived.
    pub bytes_done: u64,
}

/// Receives the progress of a refresh. It is called at most once for each MiB and each object, and must not block.
pub trait Progress: Send + Sync {
    /// Called when bytes or an object have arrived.
    fn update(&self, transfer: Transfer);
}

impl<F: Fn(Transfer) + Send + Sync> Progress for F {
    fn update(&self, transfer: Transfer) {
        self(transfer);
    }
}

/// Ignores progress.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn update(&self, _: Transfer) {}
}
