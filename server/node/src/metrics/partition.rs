//! Plans of gpulets.

use std::collections::BTreeMap;

use super::names;

/// Registers the counters, so that alerts see them rise from 0.
pub fn plans_begin() {
    metrics::counter!(names::PLANS.name).increment(0);
    metrics::counter!(names::PLAN_FAILURES.name).increment(0);
}

/// Counts a plan that came into force, or did not.
pub fn plan_ended(is_in_force: bool) {
    let name = if is_in_force { names::PLANS.name } else { names::PLAN_FAILURES.name };
    metrics::counter!(name).increment(1);
}

/// Shows the plan in force: gpulets by device, rows a second by model, and the share of them that it serves.
pub fn plan_in_force(gpulets: &BTreeMap<&str, usize>, planned: &[(&str, f64)], share: f64) {
    for (device, count) in gpulets {
        metrics::gauge!(names::GPULETS.name, names::DEVICE => (*device).to_owned()).set(*count as f64);
    }
    for (model, rate) in planned {
        metrics::gauge!(names::PLANNED_RATE.name, names::MODEL => (*model).to_owned()).set(*rate);
    }
    metrics::gauge!(names::PLANNED_SHARE.name).set(share);
}
