use super::{BatchOptions, BatchPolicy, Decision, DropMode, QueueView, Proposal, StartReason};
use crate::{ConfigError, Nanos};

/// Nanily's adaptive batch: as soon as a lane is free, the largest batch that the first request's remaining time
/// allows, found by inverting the batch time.
///
/// It believes that the batch time is known and that whatever waits should run at once. It never delays a request
/// and never drops the first request for the others: the wrong choice near capacity, where idle lanes take up
/// small batches that cost throughput, and under overload, where an old first request leaves time for a batch of
/// one only, and the queue stays old forever (metastable collapse). The formula, `B = clamp(floor((slack - v) / u),
/// 1, queue)` for a time of `u B + v`, is (seen in notes on the paper); the fit is replaced by the cost model that
/// all policies here share, inverted by search. `B` is at least 1, so a request that can no longer be answered in
/// time still runs; we conclude that requests are dropped when they have expired (our reading). The
/// autoscaler, which adds and removes instances, is not part of this. Where models share lanes, the earliest
/// deadline goes first (ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nanily;

impl BatchPolicy for Nanily {
    const NAME: &'static str = "nanily";
    const SUMMARY: &'static str = "starts immediately, with the largest batch that fits into the first request's remaining time";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &[])?;
        Ok(Self)
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let most = queue.rows.min(queue.max_batch);
        let allowed = queue.largest_by(now, queue.head.deadline);
        let reason = if allowed < most {
            StartReason::LastStart
        } else if most == queue.max_batch {
            StartReason::Full
        } else {
            StartReason::LaneFree
        };
        Decision::Fire(Proposal { skip: 0, take: allowed.min(most), rank: queue.head.deadline.0, reason })
    }

    fn drop_mode(&self) -> DropMode {
        DropMode::Lazy
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    /// A batch takes 2 ms and 1 ms a row; the first request is due after 10.5 ms, the others much later.
    fn taken(ms: u64, waiting: u32) -> (u32, StartReason) {
        let mut scene = Scene::new(&[(1, 3_000), (32, 34_000)]);
        scene.arrive(0, Some(10_500));
        (1..waiting).for_each(|_| {
            scene.arrive(0, Some(90_000));
        });
        match Nanily.decide(Nanos::from_millis(ms), &scene.view()) {
            Decision::Fire(proposal) => (proposal.take, proposal.reason),
            Decision::Wait(until) => panic!("waits until {until}"),
        }
    }

    #[test]
    fn the_batch_is_what_the_first_request_has_time_for() {
        assert_eq!(taken(0, 20), (8, StartReason::LastStart));
        assert_eq!(taken(3, 20), (5, StartReason::LastStart));
        assert_eq!(taken(0, 4), (4, StartReason::LaneFree));
    }

    #[test]
    fn a_late_request_runs_alone() {
        assert_eq!(taken(9, 20), (1, StartReason::LastStart));
        assert_eq!(taken(30, 20), (1, StartReason::LastStart));
    }

    #[test]
    fn without_a_deadline_it_takes_what_there_is() {
        let mut scene = Scene::new(&[(1, 3_000)]);
        match Nanily.decide(Nanos::ZERO, &scene.crowd(40).view()) {
            Decision::Fire(proposal) => assert_eq!((proposal.take, proposal.reason), (32, StartReason::Full)),
            Decision::Wait(until) => panic!("waits until {until}"),
        }
    }
}
