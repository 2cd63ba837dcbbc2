//! Time on the caller's clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Whole microseconds: a span, or a moment since an origin that the caller chose. Arithmetic saturates.
///
/// Predicted times are fractions of microseconds and stay `f64`, in fields that end in `_us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Micros(pub u64);

impl Micros {
    /// The origin, or no time at all.
    pub const ZERO: Self = Self(0);

    /// From whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// From whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// As seconds, rounded to the nearest `f64`.
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This long after `self`.
    #[must_use]
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Time from `earlier` to `self`, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Micros {
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for Duration {
    fn from(span: Micros) -> Self {
        Self::from_micros(span.0)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_micros(self.0))
    }
}
