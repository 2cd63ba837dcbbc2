//! Times as people write them: a decimal number and a unit.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Longer units first where one ends with another.
const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
    ("d", 86_400 * SECOND),
];

/// A length of time in whole nanoseconds: `25ms`, `1.053ms`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) u64);

impl Span {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let unit = UNITS.iter().find_map(|(unit, factor)| Some((trimmed.strip_suffix(unit)?, *factor)));
        let parsed = unit.ok_or(None).and_then(|(number, factor)| decimal(number.trim_end(), factor));
        parsed.map(Self).map_err(|why| match why {
            Some(why) => format!("`{text}` {why}"),
            None => {
                format!("`{text}` is no time: expected a number with ns, us, ms, s, m, h or d, like `25ms`")
            }
        })
    }
}

/// `number` times `factor`, exactly; the error is a predicate, or nothing when it is no number at all.
pub(crate) fn decimal(number: &str, factor: u64) -> Result<u64, Option<&'static str>> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || number.ends_with('.') {
        return Err(None);
    }
    let parse = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u128>() };
    let (whole, numerator) = (parse(whole).map_err(|_| None)?, parse(part).map_err(|_| None)?);
    let denominator = 10_u128.pow(u32::try_from(part.len()).unwrap_or(0));
    let scaled = numerator * u128::from(factor);
    if !scaled.is_multiple_of(denominator) {
        return Err(Some("is finer than a nanosecond"));
    }
    let total = whole * u128::from(factor) + scaled / denominator;
    u64::try_from(total).map_err(|_| Some("is longer than 584 years"))
}

/// Nanoseconds as people read them.
pub(crate) fn show(ns: u64) -> String {
    let unit = UNITS.iter().filter(|(unit, _)| matches!(*unit, "ns" | "us" | "ms" | "s"));
    let (unit, factor) = unit.rev().find(|(_, factor)| ns >= *factor).copied().unwrap_or(("ns", 1));
    let text =
        format!("{}.{:09}", ns / factor, u128::from(ns % factor) * u128::from(SECOND) / u128::from(factor));
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Units of sizes; `B` last, for the others end with it.
const SIZES: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

/// A number of bytes: `512B`, `64KiB`, `64MiB`, `16GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let unit =
            SIZES.iter().find_map(|(unit, factor)| Some((trimmed.strip_suffix(unit)?.trim_end(), factor)));
        let whole = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let bytes = unit
            .filter(|(number, _)| whole(number))
            .and_then(|(number, factor)| number.parse::<u64>().ok()?.checked_mul(*factor));
        bytes.map(Self).ok_or_else(|| {
            format!("`{text}` is no size: expected a whole number with B, KiB, MiB or GiB, like `16GiB`")
        })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        let cases = [
            ("25ms", 25_000_000),
            ("1.053ms", 1_053_000),
            ("5.072 ms", 5_072_000),
            ("0.5us", 500),
            ("7ns", 7),
            ("1.5s", 1_500_000_000),
            ("2m", 120 * SECOND),
            ("0.25h", 900 * SECOND),
            ("400d", 400 * 86_400 * SECOND),
            ("0s", 0),
        ];
        for (text, ns) in cases {
            assert_eq!(Span::parse(text), Ok(Span(ns)), "{text}");
        }
    }

    #[test]
    fn a_time_without_number_or_unit_is_refused() {
        for text in ["", "ms", "25", "25 minutes", "-1s", "1.s", ".5s", "1e3s", "nan s", "inf", "1,5s", "+1s"]
        {
            assert!(Span::parse(text).unwrap_err().contains("is no time"), "{text}");
        }
        assert!(Span::parse("0.5ns").unwrap_err().contains("finer"));
        assert!(Span::parse("999999999999d").unwrap_err().contains("longer"));
    }

    #[test]
    fn times_are_shown_in_the_largest_unit_that_fits() {
        for (ns, text) in
            [(0, "0ns"), (999, "999ns"), (6_125_000, "6.125ms"), (25_000_000, "25ms"), (90 * SECOND, "90s")]
        {
            assert_eq!(show(ns), text);
        }
    }

    #[test]
    fn sizes_are_whole_and_have_a_unit() {
        assert_eq!(Size::parse("16GiB"), Ok(Size(16 << 30)));
        assert_eq!(Size::parse(" 7 B "), Ok(Size(7)));
        for text in ["", "16", "16GB", "1.5GiB", "-1B", "GiB", "99999999999GiB"] {
            assert!(Size::parse(text).unwrap_err().contains("is no size"), "{text}");
        }
    }
}
