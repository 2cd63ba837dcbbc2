use super::{BatchOptions, BatchPolicy, Decision, Preempts, Proposal, QueueView, StartReason};
use crate::ConfigError;
use crate::Nanos;

/// How many times larger a batch must be to end a running one, in percent: lambda = 3.03.
const PREEMPTION: u32 = 303;

/// Shepherd's Flex: a free lane takes the largest batch of all queues whose deadlines are all met if it starts now;
/// without a free lane, one 3.03 times as large as the smallest running batch ends that batch.
///
/// It believes that what counts is how many requests a batch answers, however long it takes, and that preempting is
/// cheap. It is the wrong choice for models of unlike cost: many requests that are cheap in sum push out a few that
/// are not, and the work of a preempted batch is lost. Like all that start eagerly it forms small batches near
/// capacity and lets an old first request hold the batch small under overload. The rule is (seen in a simulator that
/// re-implements it); that 3.03 minimises the competitive ratio, at 12.62, is (from memory). The measure is rows, not
/// requests (ours). A lane may refuse to give a batch back: one that has no preemption finishes it. Planning which
/// models share which lanes (Herd) is left to the caller that configures the lanes: every model of a pool runs on all of its
/// lanes, as inside a Shepherd group. Estimates come from the cost model that all policies here share, and requests
/// are dropped as soon as they cannot be answered in time.
///
/// Its ranks are sizes and not times: where it shares lanes with models of another policy, theirs are meaningless
/// next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shepherd;

impl BatchPolicy for Shepherd {
    const NAME: &'static str = "shepherd";
    const SUMMARY: &'static str =
        "Flex: the queue with the largest batch first; it preempts a running batch of at most a third of its size";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &[])?;
        Ok(Self)
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let take = queue.largest_by(now, queue.head.deadline).min(queue.rows).min(queue.max_batch);
        Decision::Fire(Proposal { skip: 0, take, rank: u64::MAX - u64::from(take), reason: StartReason::Largest })
    }

    fn preempting(&self) -> Option<&dyn Preempts> {
        Some(self)
    }
}

impl Preempts for Shepherd {
    fn preempts(&self) -> u32 {
        PREEMPTION
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    fn proposal(scene: &Scene) -> Proposal {
        match Shepherd.decide(Nanos::ZERO, &scene.view()) {
            Decision::Fire(proposal) => proposal,
            Decision::Wait(until) => panic!("waits until {until}"),
        }
    }

    /// A batch takes 2 ms and 1 ms a row.
    fn due(deadline_us: u64, requests: u32) -> Scene {
        let mut scene = Scene::new(&[(1, 3_000), (32, 34_000)]);
        (0..requests).for_each(|_| {
            scene.arrive(0, Some(deadline_us));
        });
        scene
    }

    #[test]
    fn the_batch_is_what_all_deadlines_allow() {
        assert_eq!(proposal(&due(12_500, 20)).take, 10);
        assert_eq!(proposal(&due(90_000, 20)).take, 20);
        assert_eq!(proposal(&due(90_000, 40)).take, 32);
    }

    #[test]
    fn the_largest_batch_goes_first() {
        assert!(proposal(&due(90_000, 20)).rank < proposal(&due(90_000, 19)).rank);
        assert!(proposal(&due(12_500, 20)).rank > proposal(&due(90_000, 19)).rank);
    }
}
