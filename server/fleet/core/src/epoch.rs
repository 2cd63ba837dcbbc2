//! Epochs: which of two plans is newer, whatever the order in which they arrive.
//!
//! Every leader has an epoch higher than those of all leaders before it, and writes it into its plans. A leader that was paused
//! may still send a plan after its successor did. A node accepts plans through a [`Fence`], which refuses such a plan.

use thiserror::Error;

/// A plan of a leader that was replaced.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("epoch: expected {in_force} or higher, which is in force, got {offered}")]
pub struct Outdated {
    /// Epoch of the plan.
    pub offered: u64,
    /// Highest epoch in force on the node.
    pub in_force: u64,
}

/// The highest epoch in force on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    in_force: u64,
}

impl Fence {
    /// Continues with the epoch that a node stored; 0 on a node without a plan.
    #[must_use]
    pub const fn new(in_force: u64) -> Self {
        Self { in_force }
    }

    /// The highest epoch that was accepted; 0 before the first plan.
    #[must_use]
    pub const fn in_force(self) -> u64 {
        self.in_force
    }

    /// Accepts a plan of the epoch in force or of a newer one, which is then in force.
    ///
    /// # Errors
    /// The epoch is older than the one in force.
    pub const fn admit(&mut self, offered: u64) -> Result<(), Outdated> {
        if offered < self.in_force {
            return Err(Outdated { offered, in_force: self.in_force });
        }
        self.in_force = offered;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_epoch_is_refused_and_the_same_one_is_not() {
        let mut fence = Fence::new(3);
        assert_eq!(fence.admit(2), Err(Outdated { offered: 2, in_force: 3 }));
        assert_eq!(fence.admit(3), Ok(()));
        assert_eq!(fence.admit(7), Ok(()));
        assert_eq!(fence.in_force(), 7);
        let refused = fence.admit(3).unwrap_err();
        assert_eq!(refused.to_string(), "epoch: expected 7 or higher, which is in force, got 3");
    }
}
