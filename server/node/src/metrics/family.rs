//! Metrics of families.

use router_core::FamilySnapshot;

use super::names;

/// Shows what requests to a family get at the moment.
pub fn family_level(name: &str, state: &FamilySnapshot) {
    let quality = f64::from(state.quality) / 1e6;
    metrics::gauge!(names::FAMILY_QUALITY.name, names::MODEL => name.to_owned()).set(quality);
    for (direction, count) in [("fall", state.falls), ("rise", state.rises)] {
        metrics::counter!(names::FAMILY_CHANGES.name, names::MODEL => name.to_owned(), names::DIRECTION => direction)
            .absolute(count);
    }
}

/// A gauge stays where it was set, so that of a family that was unloaded says that there is no value.
pub fn family_ended(name: &str) {
    metrics::gauge!(names::FAMILY_QUALITY.name, names::MODEL => name.to_owned()).set(f64::NAN);
}
