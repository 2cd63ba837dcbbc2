//! Times as OTLP writes them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970; 0 for times before.
pub(crate) fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
