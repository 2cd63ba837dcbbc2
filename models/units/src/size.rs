//! Sizes in bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes with a unit: `512B`, `64KiB`, `64MiB`, `1GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a size such as `16MiB`, a whole number with B, KiB, MiB or GiB, got `{0}`")]
pub struct InvalidSize(String);

/// `B` last, because the others end with it.
const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

impl Size {
    /// As a length in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

fn parse(text: &str) -> Option<u64> {
    let (number, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), factor)))?;
    let whole = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| number.parse::<u64>().ok()?.checked_mul(*factor)).flatten()
}

impl FromStr for Size {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Self, InvalidSize> {
        parse(text.trim()).map(Self).ok_or_else(|| InvalidSize(crate::shown(text)))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::from_text(deserializer, "a size such as `16MiB`")
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = UNITS.iter().filter(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        let (unit, factor) = fitting.max_by_key(|(_, factor)| *factor).copied().unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        crate::text(self, serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed_back() {
        for text in ["0B", "1B", "1500B", "16KiB", "64MiB", "1GiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("2048 KiB".parse::<Size>().unwrap().to_string(), "2MiB");
    }

    #[test]
    fn a_size_is_a_whole_number_with_a_unit() {
        for text in ["", "64", "B", "64MB", "-1B", "1.5GiB", "18446744073709551615GiB", "16 pigs"] {
            let refused = text.parse::<Size>().unwrap_err().to_string();
            assert!(refused.ends_with(&format!("got `{text}`")), "{refused}");
        }
    }
}
