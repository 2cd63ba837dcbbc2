//! Names and versions of models.

use std::fmt;
use std::str::FromStr;

/// A model's name: 1 to 128 bytes of `A-Z a-z 0-9 _ . -`, not starting with a dot. It can therefore never be a
/// path, hidden, or need escaping in a URL or a metric label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelName(String);

/// A string that cannot be a model's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid model name `{shown}`: {reason}")]
pub struct InvalidName {
    shown: String,
    reason: &'static str,
}

impl ModelName {
    /// Bound on the length, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let reason = if name.is_empty() {
            "expected at least one character"
        } else if name.len() > Self::MAX_LEN {
            "expected at most 128 bytes"
        } else if name.starts_with('.') {
            "must not start with a dot"
        } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')) {
            "expected only letters, digits, `_`, `.` and `-`"
        } else {
            return Ok(Self(name.to_owned()));
        };
        Err(InvalidName { shown: name.chars().take(64).flat_map(char::escape_default).collect(), reason })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ModelName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl AsRef<str> for ModelName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Version of a model: the number that names its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Reads the canonical decimal form: no sign, no leading zeros, at least 1. `None` for anything else, so
    /// that `1` and `01` can never be two folders of one version.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.parse::<u64>().ok().filter(|&number| number > 0)?;
        (number.to_string() == text).then_some(Self(number))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_leave_the_repository() {
        let too_long = "x".repeat(129);
        for bad in
            ["", ".", "..", "../x", "a/b", "/etc", "a\\b", ".hidden", "a\0b", "ä", "a b", too_long.as_str()]
        {
            assert!(ModelName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["resnet50", "a.b-c_D", "0", "x..y"] {
            assert_eq!(ModelName::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn versions_have_one_spelling() {
        assert_eq!(Version::parse("7"), Some(Version(7)));
        for bad in ["0", "01", "+1", "-1", "1.tmp", "", "18446744073709551616"] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }
}
