//! Trace ids and span ids, and where new ones come from.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Id of a trace: 16 bytes, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

impl TraceId {
    /// The id with this value. `None` for zero, which means "no trace".
    pub fn new(value: u128) -> Option<Self> {
        (value != 0).then_some(Self(value))
    }

    /// The bytes as OTLP sends them.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The low 64 bits, which decide about sampling in proportion.
    pub fn low(self) -> u64 {
        (self.0 & u128::from(u64::MAX)) as u64
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:032x}", self.0)
    }
}

/// Id of a span: 8 bytes, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl SpanId {
    /// The id with this value. `None` for zero, which means "no span".
    pub fn new(value: u64) -> Option<Self> {
        (value != 0).then_some(Self(value))
    }

    /// The bytes as OTLP sends them.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:016x}", self.0)
    }
}

/// Source of new ids. Threads may share it: it takes no lock and makes no system call.
///
/// Two SplitMix64 sequences with seeds of their own give the two halves of a trace id. The ids are unique and evenly spread, as
/// sampling needs; they are not secret.
#[derive(Debug)]
pub struct IdSource {
    high: AtomicU64,
    low: AtomicU64,
}

/// Step of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl IdSource {
    /// The source that starts with this seed, for example 16 bytes of `getrandom`.
    pub fn new(seed: [u64; 2]) -> Self {
        let [high, low] = seed;
        Self { high: AtomicU64::new(high), low: AtomicU64::new(low) }
    }

    /// The source with a seed of the operating system.
    ///
    /// # Errors
    /// The operating system has no random numbers.
    pub fn seeded() -> Result<Self, getrandom::Error> {
        Ok(Self::new([getrandom::u64()?, getrandom::u64()?]))
    }

    /// A new trace id.
    pub fn trace_id(&self) -> TraceId {
        TraceId(u128::from(next(&self.high)) << 64 | u128::from(next(&self.low)).max(1))
    }

    /// A new span id.
    pub fn span_id(&self) -> SpanId {
        SpanId(next(&self.low).max(1))
    }

    /// 64 random bits.
    pub(crate) fn bits(&self) -> u64 {
        next(&self.high)
    }
}

fn next(state: &AtomicU64) -> u64 {
    mix(state.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN))
}

/// The output function of SplitMix64: a bijection that spreads any input evenly.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Ids that follow from a number: the same for the same number and the same seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerivedIds {
    seed: [u64; 3],
}

impl DerivedIds {
    pub(crate) fn new(ids: &IdSource) -> Self {
        Self { seed: [ids.bits(), ids.bits(), ids.bits()] }
    }

    pub(crate) fn of(self, number: u64) -> (TraceId, SpanId) {
        let [high, low, span] = self.seed.map(|seed| mix(seed ^ mix(number)));
        (TraceId(u128::from(high) << 64 | u128::from(low).max(1)), SpanId(span.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_distinct_and_have_all_their_digits() {
        let ids = IdSource::new([1, 2]);
        let traces: HashSet<_> = (0..1000).map(|_| ids.trace_id()).collect();
        let spans: HashSet<_> = (0..1000).map(|_| ids.span_id()).collect();
        assert_eq!((traces.len(), spans.len()), (1000, 1000));
        assert_eq!(TraceId::new(10).unwrap().to_string(), "0000000000000000000000000000000a");
        assert_eq!(SpanId::new(10).unwrap().to_string(), "000000000000000a");
    }

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let (one, other) = (IdSource::new([1, 2]), IdSource::new([1, 2]));
        assert_eq!(one.trace_id(), other.trace_id());
        assert_ne!(one.trace_id(), IdSource::seeded().unwrap().trace_id());
        let derived = DerivedIds::new(&one);
        assert_eq!(derived.of(7), derived.of(7));
        assert_ne!(derived.of(7), derived.of(8));
    }

    #[test]
    fn zero_is_not_an_id() {
        assert_eq!(TraceId::new(0), None);
        assert_eq!(SpanId::new(0), None);
    }
}
