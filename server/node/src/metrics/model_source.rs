//! The repository at a URL.

use std::time::{SystemTime, UNIX_EPOCH};

use super::names;

/// Counts a copy of the repository that failed.
pub fn repository_refresh_failed() {
    metrics::counter!(names::REPOSITORY_REFRESH_FAILURES.name).increment(1);
}

/// Records when the source listed what is served. Registers the counter of failures, so that alerts see it rise from 0.
pub fn repository_listed(time: SystemTime) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    metrics::gauge!(names::REPOSITORY_LISTED.name).set(seconds);
    metrics::counter!(names::REPOSITORY_REFRESH_FAILURES.name).increment(0);
}
