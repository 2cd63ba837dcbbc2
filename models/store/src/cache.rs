//! The cache folder.
//!
//! ```text
//! cache/
//!   lock                   locked by the process that refreshes
//!   source                 the URL that the folder belongs to
//!   current                link to the current snapshot
//!   blobs/DIGEST           content
//!   parts/NAME.part        interrupted downloads
//!   parts/NAME.done        digests of downloads that no manifest names yet
//!   manifests/ID.json      objects of a snapshot
//!   snapshots/ID/          folders of hard links to blobs
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::atomic_file;
use crate::blobs::Blobs;
use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::Manifest;
use crate::snapshot::Snapshot;

/// How often to try again while another process has the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// How often to look whether dropped work has ended.
const SETTLE_INTERVAL: Duration = Duration::from_millis(2);

/// How often a reader looks again when the current snapshot was replaced while it opened it.
const CURRENT_TRIES: usize = 100;

/// The cache folder of one source.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    url: String,
    blobs: Blobs,
}

/// The right to change the cache folder.
#[derive(Debug)]
pub(crate) struct Lock {
    file: Arc<File>,
}

impl Lock {
    /// Runs blocking work. It keeps the lock until it ends, even if the future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let file = Arc::clone(&self.file);
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(file);
            done
        });
        done.await.unwrap_or_else(|error| {
            Err(Error::Cache { path: PathBuf::new(), reason: format!("a task failed: {error}") })
        })
    }

    /// Waits until work of dropped futures has ended.
    pub(crate) async fn settle(&self) {
        while Arc::strong_count(&self.file) > 1 {
            tokio::time::sleep(SETTLE_INTERVAL).await;
        }
    }
}

impl Cache {
    /// Creates or opens the cache folder of a source.
    pub(crate) fn open(folder: &Path, url: &str) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::cache(folder, &error);
        for inner in ["blobs", "parts", "manifests", "snapshots"] {
            fs::create_dir_all(folder.join(inner)).map_err(failed)?;
        }
        let folder = folder.canonicalize().map_err(failed)?;
        let blobs = Blobs::new(folder.join("blobs"));
        let cache = Self { folder, url: url.to_owned(), blobs };
        cache.owner()?;
        Ok(cache)
    }

    /// Fails if the folder belongs to another source. Returns whether it belongs to this one; a new folder belongs to none.
    fn owner(&self) -> Result<bool, Error> {
        let path = self.folder.join("source");
        match fs::read_to_string(&path) {
            Ok(found) if found == self.url => Ok(true),
            Ok(found) => Err(Error::OtherSource { path: self.folder.clone(), found, url: self.url.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::cache(&path, &error)),
        }
    }

    /// Makes the folder belong to this source.
    fn claim(&self) -> Result<(), Error> {
        let path = self.folder.join("source");
        if !self.owner()? {
            atomic_file::replace(&path, self.url.as_bytes()).map_err(|error| Error::cache(&path, &error))?;
        }
        Ok(())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.folder.join("snapshots")
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.folder.join("manifests")
    }

    pub(crate) fn parts(&self) -> PathBuf {
        self.folder.join("parts")
    }

    pub(crate) fn link(&self) -> PathBuf {
        self.folder.join("current")
    }

    /// Waits until no other process, and no other task of this one, refreshes the cache.
    pub(crate) async fn lock(&self, timeout: Duration) -> Result<Lock, Error> {
        let path = self.folder.join("lock");
        let started = Instant::now();
        loop {
            let file = File::options().write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(|error| Error::cache(&path, &error))?;
            match file.try_lock() {
                Ok(()) => {
                    self.claim()?;
                    return Ok(Lock { file: Arc::new(file) });
                }
                Err(TryLockError::WouldBlock) if started.elapsed() >= timeout => {
                    return Err(Error::Locked { path: self.folder.clone(), waited: timeout });
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_INTERVAL).await,
                Err(TryLockError::Error(error)) => return Err(Error::cache(&path, &error)),
            }
        }
    }

    /// The current snapshot. None before the first one is complete.
    pub(crate) fn current(&self) -> Result<Option<Snapshot>, Error> {
        let link = self.link();
        let failed = |error: io::Error| Error::cache(&link, &error);
        for _ in 0..CURRENT_TRIES {
            let target = match fs::read_link(&link) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                target => target.map_err(failed)?,
            };
            let Some(id) = target.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
            let Some(manifest) = self.manifest(id) else { continue };
            let snapshot = Snapshot::hold(self.snapshots().join(id), manifest).map_err(failed)?;
            if snapshot.is_some() {
                return Ok(snapshot);
            }
        }
        // The folder or its manifest was damaged from outside: the next refresh builds it again.
        Ok(None)
    }

    /// A manifest. None if it is missing or damaged, so that the next refresh writes it again.
    pub(crate) fn manifest(&self, id: &str) -> Option<Manifest> {
        let bytes = fs::read(self.manifests().join(format!("{id}.json"))).ok()?;
        let manifest: Manifest = serde_json::from_slice(&bytes).ok()?;
        (manifest.id() == id).then_some(manifest)
    }

    /// All manifests whose content may still be in the cache.
    pub(crate) fn known(&self) -> Vec<Manifest> {
        let Ok(entries) = fs::read_dir(self.manifests()) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| self.manifest(name.strip_suffix(".json")?)).collect()
    }

    /// The digest of a download that is complete and that no manifest names.
    pub(crate) fn finished(&self, name: &str) -> Option<Digest> {
        Digest::parse(&fs::read_to_string(self.parts().join(format!("{name}.done"))).ok()?)
    }

    /// Records the digest of a complete download. After a power failure the record may be missing.
    pub(crate) fn record_finished(&self, name: &str, digest: Digest) -> io::Result<()> {
        fs::write(self.parts().join(format!("{name}.done")), digest.to_string())
    }
}
