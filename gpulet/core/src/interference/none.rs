//! No interference. Correct for hardware partitions and for one model per device; optimistic elsewhere.

use super::{Load, Runner, Slowdown};
use crate::profile::Profile;

/// Co-located batches have no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoInterference;

impl Slowdown for NoInterference {
    const NAME: &'static str = "none";

    fn lacks(&self, _: &Profile) -> Option<String> {
        None
    }

    fn slowdown(&self, _: &Runner<'_>, _: &[Load]) -> f64 {
        1.0
    }
}
