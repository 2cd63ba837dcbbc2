use super::{BatchOptions, BatchPolicy, Decision, DropMode, QueueView, Proposal, StartReason};
use crate::{ConfigError, Nanos};

/// NVIDIA Triton's dynamic batcher (`dynamic_batch_scheduler.cc`, `GetDynamicBatch`): takes what waits as soon as a
/// lane is free; with `max_delay` it waits that long for a `preferred` size, or for the largest batch if none is
/// preferred.
///
/// It believes that a bigger batch is always the better batch and that a fixed wait buys enough company to pay for
/// itself. It is the wrong choice where a batch takes as long as its requests one by one (compute-bound models on
/// CPU cores), where the rate changes (at low rates every request is delayed without a larger batch), and under overload:
/// it knows no deadline but the queue policy's timeout, which is the request's deadline here, and starts batches
/// that end too late. Algorithm (seen) in the released code; its idle poll of 500 ms is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triton {
    max_delay: Nanos,
    /// In ascending order.
    preferred: Vec<u32>,
}

impl BatchPolicy for Triton {
    const NAME: &'static str = "triton";
    const SUMMARY: &'static str = "all waiting requests when a lane becomes free; with max_delay, waits for a preferred batch size";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &["max_delay", "preferred"])?;
        let mut preferred = options.preferred.clone();
        preferred.sort_unstable();
        preferred.dedup();
        if preferred.first() == Some(&0) {
            return Err(ConfigError::new("preferred", "contains 0, expected sizes of 1 row or more"));
        }
        Ok(Self { max_delay: options.max_delay.unwrap_or(Nanos::ZERO), preferred })
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let rows = queue.rows.min(queue.max_batch);
        let fire = |take, reason| Decision::Fire(Proposal { skip: 0, take, rank: queue.oldest_arrival.0, reason });
        let largest = self.preferred.last().copied().unwrap_or(queue.max_batch).min(queue.max_batch);
        let delay_ends = queue.oldest_arrival.after(self.max_delay);
        let preferred = self.preferred.iter().rev().find(|&&size| size <= rows).copied();
        match preferred {
            Some(take) if delay_ends > now => fire(take, StartReason::PreferredSize),
            _ if rows >= largest => fire(rows, StartReason::Full),
            _ if self.max_delay == Nanos::ZERO => fire(rows, StartReason::LaneFree),
            _ if delay_ends <= now => fire(rows, StartReason::DelayOver),
            _ => Decision::Wait(delay_ends),
        }
    }

    fn drop_mode(&self) -> DropMode {
        DropMode::Lazy
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    fn triton(max_delay_ms: u64, preferred: &[u32]) -> Triton {
        let options = BatchOptions {
            max_delay: Some(Nanos::from_millis(max_delay_ms)),
            preferred: preferred.to_vec(),
            ..BatchOptions::default()
        };
        Triton::new(&options).unwrap()
    }

    fn taken(policy: &Triton, ms: u64, waiting: u32) -> Result<(u32, StartReason), Nanos> {
        match policy.decide(Nanos::from_millis(ms), &Scene::new(&[(1, 10)]).crowd(waiting).view()) {
            Decision::Fire(proposal) => Ok((proposal.take, proposal.reason)),
            Decision::Wait(until) => Err(until),
        }
    }

    #[test]
    fn without_a_delay_it_takes_all_that_waits_up_to_the_limit() {
        let policy = Triton::new(&BatchOptions::default()).unwrap();
        assert_eq!(taken(&policy, 0, 3), Ok((3, StartReason::LaneFree)));
        assert_eq!(taken(&policy, 0, 300), Ok((32, StartReason::Full)));
    }

    #[test]
    fn it_waits_for_a_preferred_size_then_goes_with_what_there_is() {
        let policy = triton(2, &[4, 8]);
        assert_eq!(taken(&policy, 0, 2), Err(Nanos::from_millis(2)));
        assert_eq!(taken(&policy, 2, 2), Ok((2, StartReason::DelayOver)));
        assert_eq!(taken(&policy, 0, 5), Ok((4, StartReason::PreferredSize)));
        assert_eq!(taken(&policy, 0, 100), Ok((8, StartReason::PreferredSize)));
    }

    #[test]
    fn without_preferred_sizes_it_waits_for_the_largest() {
        assert_eq!(taken(&triton(2, &[]), 1, 31), Err(Nanos::from_millis(2)));
        assert_eq!(taken(&triton(2, &[]), 1, 32), Ok((32, StartReason::Full)));
    }
}
