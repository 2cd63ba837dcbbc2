//! Durations as people write them, such as `50ms` and `1.5s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// A duration with its unit: `250us`, `50ms`, `1.5s`, `2m`, `1h`. A bare number is refused, because its unit would
/// differ from option to option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub Duration);

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTimeSpan {
    /// There is no number of 0 or more, or no unit.
    #[error("expected a duration such as `50ms`, a number with ns, us, ms, s, m, h or d, got `{0}`")]
    Malformed(String),
    /// The number has a part of a nanosecond.
    #[error("expected a duration of whole nanoseconds, got `{0}`")]
    TooFine(String),
    /// The number of nanoseconds has more than 64 bits.
    #[error("expected a duration of at most 584 years, got `{0}`")]
    TooLong(String),
}

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

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

/// Digits before or after the point; more could not be multiplied without overflow.
const DIGITS_MAX: usize = 18;

impl TimeSpan {
    /// Whole nanoseconds; at most 584 years.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The value in the largest unit up to seconds that leaves a number of at least 1: `6.125ms`, `90s`.
    pub fn decimal(self) -> String {
        let ns = self.nanos();
        let unit = UNITS.iter().take_while(|(_, factor)| *factor <= SECOND);
        let (unit, factor) = unit.filter(|(_, factor)| ns >= *factor).last().copied().unwrap_or(("ns", 1));
        let part = u128::from(ns % factor) * u128::from(SECOND) / u128::from(factor);
        let text = format!("{}.{part:09}", ns / factor);
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl FromStr for TimeSpan {
    type Err = InvalidTimeSpan;

    fn from_str(text: &str) -> Result<Self, InvalidTimeSpan> {
        let shown = || crate::shown(text);
        let malformed = || InvalidTimeSpan::Malformed(shown());
        let trimmed = text.trim();
        let unit = UNITS.iter().find_map(|(unit, factor)| Some((trimmed.strip_suffix(unit)?, *factor)));
        let (number, factor) = unit.ok_or_else(malformed)?;
        let number = number.trim_end();
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(part) || number.ends_with('.') {
            return Err(malformed());
        }
        let parse = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u128>() };
        let (whole, part_of) =
            (parse(whole).map_err(|_| malformed())?, parse(part).map_err(|_| malformed())?);
        let denominator = 10_u128.pow(u32::try_from(part.len()).unwrap_or(0));
        let scaled = part_of * u128::from(factor);
        if !scaled.is_multiple_of(denominator) {
            return Err(InvalidTimeSpan::TooFine(shown()));
        }
        let total = whole * u128::from(factor) + scaled / denominator;
        let nanos = u64::try_from(total).map_err(|_| InvalidTimeSpan::TooLong(shown()))?;
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::from_text(deserializer, "a duration such as `50ms`")
    }
}

impl fmt::Display for TimeSpan {
    /// A whole number in the largest unit that divides it: `1500ms`, `2m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos();
        let mut fitting = UNITS.iter().filter(|(_, unit)| nanos > 0 && nanos.is_multiple_of(*unit));
        let (word, unit) = fitting.next_back().copied().unwrap_or(("s", SECOND));
        write!(f, "{}{word}", nanos / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact_to_the_nanosecond() {
        for (text, nanos, printed, decimal) in [
            ("50ms", 50_000_000, "50ms", "50ms"),
            ("1.5s", 1_500_000_000, "1500ms", "1.5s"),
            ("5.072 ms", 5_072_000, "5072us", "5.072ms"),
            ("0.5us", 500, "500ns", "500ns"),
            ("2 m", 120 * SECOND, "2m", "120s"),
            ("0.25h", 900 * SECOND, "15m", "900s"),
            ("400d", 400 * 86_400 * SECOND, "400d", "34560000s"),
            ("0s", 0, "0s", "0ns"),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(
                (span.nanos(), span.to_string(), span.decimal()),
                (nanos, printed.to_owned(), decimal.to_owned())
            );
        }
    }

    #[test]
    fn a_text_without_number_or_unit_is_refused() {
        let malformed = [
            "",
            "50",
            "ms",
            "-1s",
            "+1s",
            "1e3s",
            "1.s",
            ".5s",
            "1 year",
            "25 minutes",
            "nan s",
            "inf",
            "1,5s",
            "1ss",
            "1µs",
            "99999999999999999999s",
            "16 pigs",
        ];
        for text in malformed {
            let refused = text.parse::<TimeSpan>().unwrap_err();
            assert_eq!(refused, InvalidTimeSpan::Malformed(text.to_owned()));
        }
        let refused = |text: &str| text.parse::<TimeSpan>().unwrap_err().to_string();
        assert_eq!(
            refused("16 pigs"),
            "expected a duration such as `50ms`, a number with ns, us, ms, s, m, h or d, got `16 pigs`"
        );
        assert_eq!(refused("0.5ns"), "expected a duration of whole nanoseconds, got `0.5ns`");
        assert_eq!(refused("999999999999d"), "expected a duration of at most 584 years, got `999999999999d`");
    }
}
