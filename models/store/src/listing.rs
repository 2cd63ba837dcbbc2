//! The objects of a source at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::key::Key;

/// What a listing says about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Size in bytes.
    pub size: u64,
    /// ETag. None if the store has none.
    pub etag: Option<String>,
    /// Version. None if the store has none or does not list it.
    pub version: Option<String>,
    /// Time of the last change in microseconds since 1970.
    pub modified_us: i64,
}

impl Listed {
    /// The ETag if equal ETags mean equal content.
    pub(crate) fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    /// Whether both have the same content: the same size, and the same ETag. If there is no strong ETag, the time of the last
    /// change must be the same, too. A change of the content within the resolution of that time is then not noticed.
    pub(crate) fn has_content_of(&self, other: &Self) -> bool {
        let bare = |etag: Option<&str>| etag.map(|etag| etag.trim_matches('"').to_owned());
        let same_tag = match (self.strong_etag(), other.strong_etag()) {
            (None, None) => self.etag == other.etag && self.modified_us == other.modified_us,
            (ours, theirs) => bare(ours) == bare(theirs),
        };
        let same_version = match (&self.version, &other.version) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        self.size == other.size && same_tag && same_version
    }
}

/// Objects by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    objects: BTreeMap<Key, Listed>,
}

impl Listing {
    /// Adds an object. Fails if the key cannot be a path; the reason does not contain the key.
    pub(crate) fn add(&mut self, key: &str, listed: Listed) -> Result<(), String> {
        let key = Key::parse(key)?;
        match self.objects.insert(key, listed) {
            None => Ok(()),
            Some(_) => Err("is listed twice".to_owned()),
        }
    }

    /// Removes folder markers: empty objects that some tools create for a folder. Fails with the key and the reason if a key is
    /// both a file and a folder.
    pub(crate) fn finish(&mut self) -> Result<(), (Key, String)> {
        let mut markers = Vec::new();
        for key in self.objects.keys() {
            for folder in key.folders() {
                match self.objects.get_key_value(folder) {
                    None => {}
                    Some((marker, listed)) if listed.size == 0 => markers.push(marker.clone()),
                    Some((file, _)) => {
                        return Err((file.clone(), format!("is both a file and the folder of `{key}`")));
                    }
                }
            }
        }
        for marker in &markers {
            self.objects.remove(marker);
        }
        Ok(())
    }

    /// The objects, by key.
    pub(crate) fn objects(&self) -> &BTreeMap<Key, Listed> {
        &self.objects
    }

    /// Bytes of all objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.objects.values().fold(0, |sum, listed| sum.saturating_add(listed.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(size: u64, etag: Option<&str>, modified_us: i64) -> Listed {
        Listed { size, etag: etag.map(str::to_owned), version: None, modified_us }
    }

    #[test]
    fn content_is_compared_by_strong_etag_or_by_time() {
        let table = [
            (listed(1, Some("\"a\""), 5), listed(1, Some("\"a\""), 6), true),
            (listed(1, Some("\"a\""), 5), listed(1, Some("a"), 5), true),
            (listed(1, Some("\"a\""), 5), listed(1, Some("\"b\""), 5), false),
            (listed(1, Some("\"a\""), 5), listed(2, Some("\"a\""), 5), false),
            (listed(1, Some("W/\"a\""), 5), listed(1, Some("W/\"a\""), 5), true),
            (listed(1, Some("W/\"a\""), 5), listed(1, Some("W/\"a\""), 6), false),
            (listed(1, None, 5), listed(1, None, 5), true),
            (listed(1, None, 5), listed(1, None, 6), false),
            (listed(1, None, 5), listed(1, Some("\"a\""), 5), false),
        ];
        for (ours, theirs, same) in table {
            assert_eq!(ours.has_content_of(&theirs), same, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn a_file_that_is_a_folder_is_refused_unless_it_is_a_marker() {
        let mut listing = Listing::default();
        listing.add("a", listed(0, None, 0)).unwrap();
        listing.add("a/b", listed(1, None, 0)).unwrap();
        listing.finish().unwrap();
        assert_eq!(listing.objects().keys().map(Key::as_str).collect::<Vec<_>>(), ["a/b"]);

        listing.add("a/b/c", listed(1, None, 0)).unwrap();
        let (key, reason) = listing.finish().unwrap_err();
        assert_eq!((key.as_str(), reason.as_str()), ("a/b", "is both a file and the folder of `a/b/c`"));
    }
}
