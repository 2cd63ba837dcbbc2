//! Files that are read again when they change.

use std::fs::{self, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::api_keys::{Hash, hash};

/// Bytes of a file.
const BYTES_MAX: u64 = 16 << 20;

/// Reads a file of bounded size.
///
/// # Errors
/// Why it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot read `{}`: {error}", path.display());
    let expected = |what: &str| format!("`{}`: expected a file {what}", path.display());
    // Checked before it is opened: opening a pipe would wait for its other end.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(expected("with content"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(cannot)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(expected(&format!("of at most {} MiB", BYTES_MAX >> 20)));
    }
    Ok(bytes)
}

/// What changes when a file is written or replaced, also through a link.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    place: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Metadata> for Stamp {
    fn from(metadata: Metadata) -> Self {
        Self {
            place: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file and its content when it was last read. `None`: it could not be read.
pub struct WatchedFile {
    pub path: PathBuf,
    stamp: Option<Stamp>,
    content: Option<Hash>,
}

impl WatchedFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, stamp: None, content: None }
    }

    /// A hash of what the file holds now. The content is read only if the file was touched.
    pub fn content(&mut self) -> Option<Hash> {
        let stamp = fs::metadata(&self.path).ok().map(Stamp::from);
        if stamp.is_none() || stamp != self.stamp {
            self.content = read(&self.path).ok().map(|bytes| hash(&bytes));
            self.stamp = stamp;
        }
        self.content
    }
}
