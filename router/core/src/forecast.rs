//! What admission expects of a request.

use serde::Serialize;

use crate::Nanos;

/// What admission expected of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// Rows of its queue that would run before it.
    pub rows_before: u64,
    /// Lanes that its model could use.
    pub lanes: u32,
    /// Part of the time until its end in which these lanes run what came before it.
    pub wait: Nanos,
    /// The earliest end. Zero if nothing was expected: a lane was free, the request has no deadline, or the policy drops only
    /// requests whose deadline has passed.
    pub end: Nanos,
}
