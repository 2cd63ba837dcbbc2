//! Why a mirror cannot do what was asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::location::LocationError;

/// Why a mirror cannot do what was asked. No text contains a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL or an option of the source is wrong.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The source could not be reached, or failed.
    #[error("model repository {url}: {reason}")]
    Unavailable {
        /// URL of the source.
        url: String,
        /// What failed.
        reason: String,
    },
    /// The source refuses the credentials, or needs some.
    #[error(
        "model repository {url}: access denied: expected credentials that may list and read it: {reason}"
    )]
    Denied {
        /// URL of the source.
        url: String,
        /// Answer of the source.
        reason: String,
    },
    /// The source has no objects. This is an error because most stores do not tell an empty prefix from a wrong one.
    #[error("model repository {url}: has no objects: expected at least one; check the bucket and the prefix")]
    Empty {
        /// URL of the source.
        url: String,
    },
    /// The key of an object cannot be a path in a folder.
    #[error("model repository {url}: object key `{}`: {reason}", key.escape_debug())]
    Key {
        /// URL of the source.
        url: String,
        /// The key.
        key: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// The source lists too many objects.
    #[error("model repository {url}: has more than {objects_max} objects")]
    TooManyObjects {
        /// URL of the source.
        url: String,
        /// The limit.
        objects_max: usize,
    },
    /// The repository is larger than the cache may be.
    #[error(
        "model repository {url}: has {bytes} bytes, and the limit of the cache is {bytes_max}: raise the limit to at least {bytes}"
    )]
    TooLarge {
        /// URL of the source.
        url: String,
        /// Bytes of all listed objects.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// Objects changed after each listing.
    #[error(
        "model repository {url}: `{key}` changed or was not found after each of {listings} listings: \
         wait until uploads end; a key must not start or end with `/`"
    )]
    Changing {
        /// URL of the source.
        url: String,
        /// The last object that changed.
        key: String,
        /// Number of listings.
        listings: usize,
    },
    /// The content of an object differs from the store's checksum.
    #[error("model repository {url}: `{key}`: expected content with MD5 {expected}, got {got}")]
    Checksum {
        /// URL of the source.
        url: String,
        /// The object.
        key: String,
        /// The store's checksum.
        expected: String,
        /// The checksum of what arrived.
        got: String,
    },
    /// The cache folder cannot be read or written.
    #[error("cache folder: {}: {reason}", path.display())]
    Cache {
        /// File or folder.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// The cache folder belongs to another source.
    #[error("cache folder {}: holds {found}: expected {url}; use one folder for each source", path.display())]
    OtherSource {
        /// The cache folder.
        path: PathBuf,
        /// URL of the source that the folder belongs to.
        found: String,
        /// URL of the source of this mirror.
        url: String,
    },
    /// Another process refreshes the cache for too long.
    #[error("cache folder {}: another process has been refreshing it for {} s", path.display(), waited.as_secs())]
    Locked {
        /// The cache folder.
        path: PathBuf,
        /// How long this one waited.
        waited: Duration,
    },
}

impl Error {
    /// A fixed word for each reason, for example as the label of a metric.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Location(_) => "location",
            Self::Unavailable { .. } => "unavailable",
            Self::Denied { .. } => "denied",
            Self::Empty { .. } => "empty",
            Self::Key { .. } => "key",
            Self::TooManyObjects { .. } => "too_many_objects",
            Self::TooLarge { .. } => "too_large",
            Self::Changing { .. } => "changing",
            Self::Checksum { .. } => "checksum",
            Self::Cache { .. } => "cache",
            Self::OtherSource { .. } => "other_source",
            Self::Locked { .. } => "locked",
        }
    }

    /// An error of a file or folder of the cache.
    pub(crate) fn cache(path: &Path, error: &std::io::Error) -> Self {
        Self::Cache { path: path.to_owned(), reason: error.to_string() }
    }
}
