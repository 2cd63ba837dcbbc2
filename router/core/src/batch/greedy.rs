use super::{BatchOptions, BatchPolicy, Decision, QueueView, refuse_max_delay, refuse_preferred};
use crate::{ConfigError, Nanos};

/// Takes whatever is waiting the moment a lane is free (Triton's dynamic batcher with a queue delay of 0).
///
/// It believes that a bigger batch is always the better batch. That holds on accelerators with capacity to
/// spare; it is the wrong choice where a batch takes as long as its requests one by one (compute-bound models
/// on CPU cores), because every request then waits for all the others of its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greedy;

impl BatchPolicy for Greedy {
    const NAME: &'static str = "greedy";
    const SUMMARY: &'static str = "take everything that waits as soon as a lane is free";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        refuse_max_delay(Self::NAME, options)?;
        refuse_preferred(Self::NAME, options)?;
        Ok(Self)
    }

    fn decide(&self, _now: Nanos, queue: &QueueView<'_>) -> Decision {
        Decision::Fire { take: queue.rows.min(queue.max_batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::deadline::tests::view;
    use super::*;
    use crate::CostModel;

    #[test]
    fn it_takes_all_that_waits_up_to_the_limit() {
        let cost = CostModel::default();
        assert_eq!(Greedy.decide(Nanos::ZERO, &view(&cost, 3)), Decision::Fire { take: 3 });
        assert_eq!(Greedy.decide(Nanos::ZERO, &view(&cost, 300)), Decision::Fire { take: 32 });
    }
}
