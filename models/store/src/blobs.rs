//! Content by digest: one file for each, never changed.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::digest::Digest;

/// Content that is in the cache.
pub(crate) struct Blob {
    pub digest: Digest,
    pub bytes: u64,
    /// When a snapshot last stopped using it, or when it was downloaded.
    pub used: SystemTime,
}

/// The folder of all content.
#[derive(Clone, Debug)]
pub(crate) struct Blobs {
    folder: PathBuf,
}

impl Blobs {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    /// Whether content of this size is there.
    pub(crate) fn contains(&self, digest: Digest, bytes: u64) -> bool {
        fs::symlink_metadata(self.path(digest)).is_ok_and(|found| found.is_file() && found.len() == bytes)
    }

    /// Takes over a file whose content is complete and on disk.
    pub(crate) fn adopt(&self, file: &Path, digest: Digest) -> io::Result<()> {
        // Snapshots share the file: a reader must not change it.
        fs::set_permissions(file, Permissions::from_mode(0o444))?;
        fs::rename(file, self.path(digest))
    }

    /// Marks content as used now.
    pub(crate) fn touch(&self, digest: Digest) -> io::Result<()> {
        match File::open(self.path(digest)) {
            Ok(file) => file.set_modified(SystemTime::now()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All content, least recently used first.
    pub(crate) fn list(&self) -> io::Result<Vec<Blob>> {
        let mut blobs = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let found = entry.metadata()?;
            if let Some(digest) = entry.file_name().to_str().and_then(Digest::parse) {
                blobs.push(Blob { digest, bytes: found.len(), used: found.modified()? });
            }
        }
        blobs.sort_by_key(|blob| (blob.used, blob.digest));
        Ok(blobs)
    }

    pub(crate) fn remove(&self, digest: Digest) -> io::Result<()> {
        fs::remove_file(self.path(digest))
    }
}
