//! Reloads of the configuration.

use super::names;

/// Shows that the configuration of the start is in force. Registers the counters, so that alerts see them rise from 0.
pub fn configuration_started() {
    metrics::counter!(names::CONFIG_RELOADS.name).increment(0);
    metrics::counter!(names::CONFIG_RELOAD_FAILURES.name).increment(0);
    configuration_in_force(0);
}

/// Counts a reload that is in force. `pending`: settings that differ and need a restart.
pub fn configuration_reloaded(pending: usize) {
    metrics::counter!(names::CONFIG_RELOADS.name).increment(1);
    configuration_in_force(pending);
}

/// Counts a reload that changed nothing, because of a mistake.
pub fn configuration_not_reloaded() {
    metrics::counter!(names::CONFIG_RELOAD_FAILURES.name).increment(1);
    metrics::gauge!(names::CONFIG_CURRENT.name).set(0.0);
}

fn configuration_in_force(pending: usize) {
    metrics::gauge!(names::CONFIG_CURRENT.name).set(1.0);
    metrics::gauge!(names::CONFIG_PENDING.name).set(pending as f64);
}
