//! Nanoseconds as people read them.

use hdrhistogram::{Counter, Histogram};

pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) const MICROSECOND: u64 = 1_000;

/// Converts nanoseconds to seconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Converts nanoseconds to milliseconds.
pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// The value that this share of all values do not exceed, in the histogram's unit, never above the largest.
pub(crate) fn quantile<C: Counter>(histogram: &Histogram<C>, share: f64) -> u64 {
    histogram.value_at_quantile(share).min(histogram.max())
}

/// A share of a whole that may be nothing.
pub(crate) fn share(part: u64, whole: u64, of_nothing: f64) -> f64 {
    if whole == 0 { of_nothing } else { part as f64 / whole as f64 }
}
