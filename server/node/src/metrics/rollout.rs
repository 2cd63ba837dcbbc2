//! Roll-outs of new versions.

use super::names;

/// Shows that a roll-out begins. Registers the counters, so that alerts see them rise from 0.
pub fn rollout_began(model: &str) {
    metrics::counter!(names::ROLLOUT_PROMOTIONS.name, names::MODEL => model.to_owned()).increment(0);
    metrics::counter!(names::ROLLOUT_ROLLBACKS.name, names::MODEL => model.to_owned()).increment(0);
    active(model, 1.0);
}

/// Counts the verdict of a roll-out.
pub fn rollout_decided(model: &str, is_promotion: bool) {
    let name = if is_promotion { names::ROLLOUT_PROMOTIONS.name } else { names::ROLLOUT_ROLLBACKS.name };
    metrics::counter!(name, names::MODEL => model.to_owned()).increment(1);
}

/// Shows that a roll-out has ended, with or without a verdict.
pub fn rollout_ended(model: &str) {
    active(model, 0.0);
}

fn active(model: &str, value: f64) {
    metrics::gauge!(names::ROLLOUT_ACTIVE.name, names::MODEL => model.to_owned()).set(value);
}
