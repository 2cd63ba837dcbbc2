//! Keys of objects, which become paths of files. Any writer of the source can choose them, so they are not trusted.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Bound on the length of a key: that of S3.
const KEY_BYTES_MAX: usize = 1024;

/// Bound on a part of a key: the longest file name of Linux.
const PART_BYTES_MAX: usize = 255;

/// Bound on the folders of a key.
const PARTS_MAX: usize = 32;

/// The key of an object relative to the repository's prefix. Always a relative path of normal file names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

impl Key {
    /// Checks a key. The error says which rule it breaks.
    pub fn parse(key: &str) -> Result<Self, String> {
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("has {} bytes: expected at most {KEY_BYTES_MAX}", key.len()));
        }
        if key.starts_with('/') {
            return Err("is an absolute path: expected a relative one".to_owned());
        }
        if key.chars().any(char::is_control) {
            return Err("has a control character: expected printable ones".to_owned());
        }
        if key.split('/').count() > PARTS_MAX {
            return Err(format!("has more than {PARTS_MAX} parts"));
        }
        for part in key.split('/') {
            match part {
                "" => return Err("has an empty part: expected names separated by one `/`".to_owned()),
                "." | ".." => return Err(format!("has a part `{part}`: expected a name")),
                _ if part.len() > PART_BYTES_MAX => {
                    return Err(format!(
                        "has a part of {} bytes: expected at most {PART_BYTES_MAX}",
                        part.len()
                    ));
                }
                _ => {}
            }
        }
        Ok(Self(key.to_owned()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where the object lies inside a folder.
    pub(crate) fn inside(&self, folder: &Path) -> PathBuf {
        folder.join(&self.0)
    }

    /// The folders that this key lies in, nearest last.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').filter_map(|(end, _)| self.0.get(..end))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Lets a set of keys be searched by text, for example by the name of a folder.
impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(key: String) -> Result<Self, String> {
        Self::parse(&key).map_err(|reason| format!("key `{}`: {reason}", key.escape_debug()))
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hostile_keys_are_refused() {
        let long = "x".repeat(256);
        let longer = "x/".repeat(600);
        let deep = vec!["x"; 33].join("/");
        let table = [
            ("", "empty part"),
            ("..", "part `..`"),
            ("a/../../etc/passwd", "part `..`"),
            ("./a", "part `.`"),
            ("/etc/passwd", "absolute"),
            ("a//b", "empty part"),
            ("a/", "empty part"),
            ("a\0b", "control"),
            ("a\nb", "control"),
            (long.as_str(), "256 bytes"),
            (longer.as_str(), "1200 bytes"),
            (deep.as_str(), "32 parts"),
        ];
        for (key, words) in table {
            let reason = Key::parse(key).unwrap_err();
            assert!(reason.contains(words), "{key}: {reason}");
        }
        for key in ["a", "resnet/1/model.onnx", "..a/b..", "ä/ö", ".hidden", "a b", "a\\b"] {
            assert_eq!(Key::parse(key).unwrap().as_str(), key);
        }
    }

    #[test]
    fn folders_of_a_key() {
        let key = Key::parse("a/b/c").unwrap();
        assert_eq!(key.folders().collect::<Vec<_>>(), ["a", "a/b"]);
    }

    proptest! {
        #[test]
        fn a_key_never_leaves_the_folder(key in "[a./\\x00é]{0,12}") {
            if let Ok(key) = Key::parse(&key) {
                let path = key.inside(Path::new("/root/folder"));
                prop_assert!(path.starts_with("/root/folder"));
                let normal = path.strip_prefix("/root/folder").unwrap().components()
                    .all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(normal);
            }
        }
    }
}
