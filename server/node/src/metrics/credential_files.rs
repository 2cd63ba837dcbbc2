//! Files of `[identity]` and `[tls]`.

use std::time::{SystemTime, UNIX_EPOCH};

use super::names;

/// Counts a changed file that could not be loaded.
pub fn identity_reload_failed(file: &'static str) {
    identity_reload_failures(file).increment(1);
}

/// Registers the counter of a file, so that alerts see it rise from 0.
pub fn register_identity_file(file: &'static str) {
    identity_reload_failures(file).increment(0);
}

/// Records when a file was loaded last.
pub fn identity_loaded(file: &'static str, now: SystemTime) {
    metrics::gauge!(names::IDENTITY_LOADED.name, names::FILE => file).set(seconds(now));
}

/// Records when the first certificate of a file expires.
pub fn certificate_expires(file: &'static str, expires: SystemTime) {
    metrics::gauge!(names::CERTIFICATE_EXPIRY.name, names::FILE => file).set(seconds(expires));
}

fn identity_reload_failures(file: &'static str) -> metrics::Counter {
    metrics::counter!(names::IDENTITY_RELOAD_FAILURES.name, names::FILE => file)
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
