//! The capability to end a running batch early.

use super::Policy;

/// Ends a running batch in favour of a larger one that finds no lane. Shepherd (Zhang et al., NSDI 2023) needs it: its
/// online scheduler, Flex, corrects a small batch that it started before more requests came.
pub trait Preempts {
    /// A running batch is preempted when one of this many times its rows, in percent, finds no lane.
    fn preempts(&self) -> u32;
}

impl Policy {
    /// See [`Preempts::preempts`]; `None` if it never preempts.
    pub fn preempts(&self) -> Option<u32> {
        self.preempting().map(Preempts::preempts)
    }
}
