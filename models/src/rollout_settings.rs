//! The `rollout` table of a model, and shares as settings have them.

use std::num::NonZeroU64;

use documented::DocumentedFields;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

use crate::TimeSpan;

/// How a new version of a model replaces the one that serves.
///
/// ```toml
/// [models.resnet50.rollout]
/// canary = 0.1
/// bake = "10m"
/// compare = true
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutSettings {
    /// Share of the requests that name no version which the new version gets until it is promoted: above 0, at most 0.5.
    /// Default: 0.1. Example: `0.05`.
    pub canary: Option<Share>,
    /// Least time before the new version is promoted. It is rolled back at any time. Default: `10m`. Example: `"1h"`.
    pub bake: Option<TimeSpan>,
    /// Least number of requests that the new version must have ended before it is promoted; with `compare`, also of comparisons.
    /// Default: 500. Example: `2000`.
    pub samples: Option<NonZeroU64>,
    /// Whether requests that the old version answered also run on the new one, without a deadline and without a response to a client, to
    /// compare outputs. As many requests as `canary` says are compared. Default: `false`. Example: `true`.
    pub compare: Option<bool>,
    /// Least share of compared requests whose outputs must agree, within a hundredth of the largest value of an output. Default: 0.99.
    /// Example: `1.0`.
    pub agreement: Option<Share>,
}

impl RolloutSettings {
    /// The first value out of range, and what is expected.
    pub fn mistake(&self) -> Option<(&'static str, &'static str)> {
        let canary = self.canary?.get();
        (canary <= 0.0 || canary > 0.5).then_some(("canary", "expected a share above 0 and at most 0.5"))
    }
}

/// A share from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    millionths: u32,
}

impl Share {
    /// As a number from 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.millionths) / 1e6
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShareVisitor)
    }
}

struct ShareVisitor;

impl Visitor<'_> for ShareVisitor {
    type Value = Share;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a share from 0 to 1, such as 0.1")
    }

    fn visit_f64<E: Error>(self, share: f64) -> Result<Share, E> {
        if !(0.0..=1.0).contains(&share) {
            return Err(E::invalid_value(Unexpected::Float(share), &self));
        }
        Ok(Share { millionths: (share * 1e6).round() as u32 })
    }

    fn visit_i64<E: Error>(self, share: i64) -> Result<Share, E> {
        match share {
            0 => Ok(Share { millionths: 0 }),
            1 => Ok(Share { millionths: 1_000_000 }),
            _ => Err(E::invalid_value(Unexpected::Signed(share), &self)),
        }
    }

    fn visit_u64<E: Error>(self, share: u64) -> Result<Share, E> {
        self.visit_i64(i64::try_from(share).unwrap_or(-1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RolloutSettings, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn shares_are_numbers_from_0_to_1() {
        assert_eq!(read("canary = 0.25").unwrap().canary.unwrap().get(), 0.25);
        assert_eq!(read("agreement = 1").unwrap().agreement.unwrap().get(), 1.0);
        for wrong in ["canary = 10", "canary = -0.1", "canary = \"10 %\"", "agreement = 1.5"] {
            assert!(read(wrong).unwrap_err().contains("expected a share from 0 to 1"), "{wrong}");
        }
    }

    #[test]
    fn a_canary_gets_some_requests_and_at_most_half() {
        assert_eq!(read("canary = 0.5").unwrap().mistake(), None);
        for wrong in ["canary = 0", "canary = 0.51"] {
            assert_eq!(read(wrong).unwrap().mistake().unwrap().0, "canary");
        }
    }
}
