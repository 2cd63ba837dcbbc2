//! The objects of a snapshot: key, ETag, size and digest.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::key::Key;
use crate::listing::Listed;

/// An object of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What the source listed.
    #[serde(flatten)]
    pub listed: Listed,
    /// SHA-256 of the content.
    pub digest: Digest,
}

/// The objects of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// When the source was listed, in seconds since 1970.
    pub listed_at: u64,
    /// Objects by key.
    pub objects: BTreeMap<Key, Entry>,
}

impl Manifest {
    /// Identifies the content: the same keys with the same content have the same identifier.
    pub fn id(&self) -> String {
        let mut id = self.digest_of_lines(" ").to_string();
        id.truncate(32);
        id
    }

    /// SHA-256 of the output of `sha256sum` for all objects, in the order of their keys as bytes.
    pub fn digest(&self) -> Digest {
        self.digest_of_lines("  ")
    }

    fn digest_of_lines(&self, space: &str) -> Digest {
        let mut text = String::new();
        for (key, entry) in &self.objects {
            // A key has no line break.
            let _ = writeln!(text, "{}{space}{key}", entry.digest);
        }
        Digest::of(text.as_bytes())
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.objects.values().fold(0, |sum, entry| sum.saturating_add(entry.listed.size))
    }
}
