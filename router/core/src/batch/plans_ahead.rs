//! The capability to give a lane its next batch while it runs one.

use super::Policy;
use crate::Nanos;

/// Hands over batches before a lane is free. Clockwork (Gujarati et al., OSDI 2020) needs it: its controller knows when a
/// batch will end and commits each lane some milliseconds ahead.
pub trait PlansAhead {
    /// How long before a lane is free it gets the next batch, more than zero. Lanes without time slices comply if all
    /// their models have policies that plan ahead, with the least of their times.
    fn ahead(&self) -> Nanos;
}

impl Policy {
    /// Whether it hands over batches before a lane is free, so that lanes hold up to two.
    pub fn plans_ahead(&self) -> bool {
        self.ahead() > Nanos::ZERO
    }

    fn ahead(&self) -> Nanos {
        self.planning_ahead().map_or(Nanos::ZERO, PlansAhead::ahead)
    }
}

/// How long before they are free the lanes of these policies get the next batch; `NEVER` without policies.
pub(crate) fn least_ahead<'a>(policies: impl Iterator<Item = &'a Policy>) -> Nanos {
    policies.map(Policy::ahead).min().unwrap_or(Nanos::NEVER)
}
