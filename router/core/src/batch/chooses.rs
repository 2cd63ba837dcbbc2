//! The capability to choose among the queues that want a lane.

use super::{Demand, Policy, PoolView, Proposal};
use crate::Nanos;

/// A queue that would fire, among others that want the same lane.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// What it would fire.
    pub proposal: Proposal,
    /// Time that it should take.
    pub time: Nanos,
    /// The traffic of its model alone is more than the lanes answer, so that admission rejects part of it.
    pub overloaded: bool,
    /// When the remaining batch must start if the first request is dropped; `NEVER` if none remains.
    pub last_start_of_rest: Nanos,
    pub(crate) queue: u32,
}

/// Chooses among several queues instead of taking the one of the lowest rank. The apparent tardiness cost rule of machine
/// scheduling (Vepsalainen and Morton, Management Science 33(8), 1987) needs it, which `deadline` follows: a rank orders
/// queues one by one, and that rule weighs each against all that wait.
pub trait Chooses {
    /// Number of queues to choose from, at least 2.
    fn choices(&self) -> u32;

    /// Which of several queues of equal class and priority gets the lane: a position in `candidates`, which are in order
    /// of rank.
    fn choose(&self, now: Nanos, candidates: &[Candidate], pool: &PoolView<'_>) -> usize;

    /// What the model needs of its lanes. The sum over all models of the lanes is [`PoolView::demand`].
    fn demand(&self) -> Demand;
}

impl Policy {
    /// The demand of its model; nothing if the policy does not choose by demand.
    pub(crate) fn demand(&self) -> Demand {
        self.choosing().map(|policy| policy.demand()).unwrap_or_default()
    }
}
