//! Limits of how much longer a percentile may become.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How much longer a percentile of latencies may become: `p99 <= 1.05x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PercentileLimit {
    /// The percentile in thousandths, 500 to 999: 990 is the 99th.
    pub percentile: u32,
    /// How often as long it may become, in thousandths, 1000 to 100000: 1050 is 5 % longer.
    pub factor: u32,
}

/// A text that is not such a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a limit such as `p99 <= 1.05x`, with p50 to p99.9 and 1x to 100x, got `{0}`")]
pub struct InvalidPercentileLimit(String);

/// A number with at most this many digits behind the point, in units of the last one.
fn fixed(text: &str, digits: usize) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > digits || whole.len() > 3 {
        return None;
    }
    format!("{whole}{part:0<digits$}").parse().ok()
}

impl FromStr for PercentileLimit {
    type Err = InvalidPercentileLimit;

    fn from_str(text: &str) -> Result<Self, InvalidPercentileLimit> {
        let parse = || {
            let (percentile, factor) = text.split_once("<=")?;
            let percentile = fixed(percentile.trim().strip_prefix('p')?, 1)?;
            let factor = fixed(factor.trim().strip_suffix('x')?, 3)?;
            let valid = (500..=999).contains(&percentile) && (1_000..=100_000).contains(&factor);
            valid.then_some(Self { percentile, factor })
        };
        parse().ok_or_else(|| InvalidPercentileLimit(crate::shown(text)))
    }
}

impl<'de> Deserialize<'de> for PercentileLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::from_text(deserializer, "a limit such as `p99 <= 1.05x`")
    }
}

impl fmt::Display for PercentileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percentile, factor) = (f64::from(self.percentile) / 10.0, f64::from(self.factor) / 1_000.0);
        write!(f, "p{percentile} <= {factor}x")
    }
}

impl Serialize for PercentileLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        crate::text(self, serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_printed_back() {
        for text in ["p99 <= 1.05x", "p99.9 <= 2x", "p50 <= 1x", "p95 <= 1.125x", "p90 <= 100x"] {
            assert_eq!(text.parse::<PercentileLimit>().unwrap().to_string(), text);
        }
        let limit = "p99<=1.05x".parse::<PercentileLimit>().unwrap();
        assert_eq!((limit.percentile, limit.factor), (990, 1_050));
        for text in [
            "",
            "p99",
            "99 <= 1.05x",
            "p99 <= 1.05",
            "p100 <= 2x",
            "p99 < 2x",
            "p99 <= 0.9x",
            "p99.99 <= 2x",
            "p99 <= -2x",
            "p99 <= 1e1x",
        ] {
            assert!(text.parse::<PercentileLimit>().is_err(), "{text}");
        }
    }
}
