//! A complete copy of the repository, as a reader sees it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::manifest::Manifest;

/// A complete copy of the repository: a folder with the layout of the source.
///
/// The folder exists, unchanged, for as long as the value lives, also when another process refreshes the cache: the value holds a
/// shared lock of the folder. The system releases the lock when the process ends.
#[derive(Clone, Debug)]
pub struct Snapshot {
    path: PathBuf,
    manifest: Arc<Manifest>,
    _lock: Arc<File>,
}

impl Snapshot {
    /// Locks a folder. None if it was removed in the meantime.
    pub(crate) fn hold(path: PathBuf, manifest: Manifest) -> io::Result<Option<Self>> {
        let folder = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            folder => folder?,
        };
        folder.lock_shared()?;
        // The folder may have been renamed, to be removed, before it was locked.
        let locked = folder.metadata()?;
        let same =
            fs::metadata(&path).is_ok_and(|now| now.ino() == locked.ino() && now.dev() == locked.dev());
        Ok(same.then(|| Self { path, manifest: Arc::new(manifest), _lock: Arc::new(folder) }))
    }

    /// The folder. Its path is of this snapshot only; the next one has another path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The objects with their digests.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn shared_manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest)
    }

    /// Identifies the content.
    pub fn id(&self) -> String {
        self.manifest.id()
    }
}
