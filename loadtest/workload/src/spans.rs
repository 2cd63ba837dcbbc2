//! Durations as this crate computes with them: nanoseconds.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use units::{InvalidTimeSpan, TimeSpan};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) u64);

impl Span {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidTimeSpan> {
        text.parse().map(|span: TimeSpan| Self(span.nanos()))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TimeSpan::deserialize(deserializer).map(|span| Self(span.nanos()))
    }
}

/// Nanoseconds as messages show them.
pub(crate) fn show(ns: u64) -> String {
    TimeSpan(Duration::from_nanos(ns)).decimal()
}
