//! Durations as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// A duration with its unit: `250us`, `50ms`, `1.5s`, `2m`, `1h`. A bare number is refused, because nobody
/// remembers which unit an option counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct TimeSpan(pub Duration);

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` is not a duration: {reason}")]
pub struct InvalidTimeSpan {
    shown: String,
    reason: &'static str,
}

/// Units and their nanoseconds, longest word first where one ends with another.
const UNITS: [(&str, u128); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl TimeSpan {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic());
        let unit_at = unit_at.ok_or("expected a unit: ns, us, ms, s, m or h")?;
        let (number, unit) = text.split_at(unit_at);
        let nanos = UNITS.iter().find(|(word, _)| *word == unit).map(|(_, nanos)| *nanos);
        let nanos = nanos.ok_or("unknown unit: expected ns, us, ms, s, m or h")?;
        let (whole, fraction) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty()
            || !digits(whole)
            || !digits(fraction)
            || (number.contains('.') && fraction.is_empty())
        {
            return Err("expected a number of 0 or more before the unit");
        }
        const FRACTION_DIGITS_MAX: usize = 9;
        if whole.len() > 18 || fraction.len() > FRACTION_DIGITS_MAX {
            return Err("has too many digits");
        }
        let parse = |part: &str| if part.is_empty() { Ok(0) } else { part.parse::<u128>() };
        let whole = parse(whole).map_err(|_| "has too many digits")?;
        let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
        let fraction = parse(fraction).map_err(|_| "has too many digits")?;
        let total = whole * nanos + fraction * nanos / scale;
        let total = u64::try_from(total).map_err(|_| "is longer than 500 years")?;
        Ok(Self(Duration::from_nanos(total)))
    }
}

impl FromStr for TimeSpan {
    type Err = InvalidTimeSpan;

    fn from_str(text: &str) -> Result<Self, InvalidTimeSpan> {
        Self::parse(text.trim())
            .map_err(|reason| InvalidTimeSpan { shown: text.chars().take(64).collect(), reason })
    }
}

impl TryFrom<String> for TimeSpan {
    type Error = InvalidTimeSpan;

    fn try_from(text: String) -> Result<Self, InvalidTimeSpan> {
        text.parse()
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (word, unit) = UNITS
            .iter()
            .rev()
            .find(|(_, unit)| nanos > 0 && nanos.is_multiple_of(*unit))
            .copied()
            .unwrap_or(("s", 1_000_000_000));
        write!(f, "{}{word}", nanos / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_parse_and_print() {
        for (text, nanos, printed) in [
            ("50ms", 50_000_000, "50ms"),
            ("1.5s", 1_500_000_000, "1500ms"),
            ("250us", 250_000, "250us"),
            ("2 m", 120_000_000_000, "2m"),
            ("0s", 0, "0s"),
            ("0.5ns", 0, "0s"),
            ("60s", 60_000_000_000, "1m"),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!((span.0.as_nanos(), span.to_string().as_str()), (nanos, printed), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for bad in [
            "",
            "50",
            "ms",
            "-1s",
            "1e3s",
            "1.s",
            ".5s",
            "1 year",
            "nan",
            "99999999999999999999s",
            "1ss",
            "1µs",
        ] {
            assert!(bad.parse::<TimeSpan>().is_err(), "{bad}");
        }
    }
}
