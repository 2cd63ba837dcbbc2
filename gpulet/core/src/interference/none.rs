//! No interference: right for hardware partitions and for one model a device, wishful elsewhere.

use super::{Load, Runner, Slowdown};
use crate::profile::Profile;

/// CoLocated change nothing.
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
