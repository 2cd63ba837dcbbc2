use super::{BatchOptions, BatchPolicy, Decision, QueueView, Proposal, StartReason};
use crate::{ConfigError, Nanos};

/// Symphony's deferred batches: a queue may not start before the moment from which one more request would make its
/// first one late, and takes the free lane with the smallest id then.
///
/// With `d` the first deadline and `b` rows waiting, the window opens at `frontrun = d - L(b + 1)` and closes at
/// `latest = d - L(b)`; at the largest batch it opens at once. A lane that becomes free takes, of the open windows,
/// the one that closes first. It believes that a batch time is known to the fraction of a millisecond and that a lane
/// will be free when the window opens. It is the wrong choice when times vary, since each batch that starts in its
/// window ends at its first deadline, a little more time misses it; near capacity, when windows of several models
/// open together and all but one of them pass; and under overload, where without dropping requests the first one
/// holds the batch small and the queue stays old forever (metastable collapse). That batches are deferred, and that
/// all lanes are matched centrally, is (seen in the abstract); the formulas are (from memory), consistent with a public
/// re-implementation; there is no public code. Of the two ways out of a window that passed while no lane was
/// free, dropping the oldest request or starting a smaller batch, this takes the second: only hopeless
/// requests are dropped. Estimates come from the cost model that all policies here share, on the cautious side: two deviations above the mean are the margin for noise (ours). Sub-clusters and the
/// autoscaler are left out. Requests without a deadline, and models whose times are not known yet, start at once
/// (ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symphony;

impl BatchPolicy for Symphony {
    const NAME: &'static str = "symphony";
    const SUMMARY: &'static str =
        "defers each batch until one more request would make the first one late";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &[])?;
        Ok(Self)
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let deadline = queue.head.deadline;
        let waiting = queue.rows.min(queue.max_batch);
        let take = waiting.min(queue.largest_by(now, deadline));
        let rank = queue.latest_start(deadline, take).0;
        let fire = |reason| Decision::Fire(Proposal { skip: 0, take, rank, reason });
        if waiting == queue.max_batch {
            return fire(StartReason::Full);
        }
        let one_more = queue.time(waiting + 1);
        if deadline == Nanos::NEVER || one_more == Nanos::ZERO {
            return fire(StartReason::LaneFree);
        }
        let frontrun = deadline.before(one_more);
        if now < frontrun { Decision::Wait(frontrun) } else { fire(StartReason::LastStart) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    /// A batch takes 2 ms and 1 ms a row; one request came at the origin, the others later; all want 20 ms.
    fn scene(requests: u32) -> Scene {
        let mut scene = Scene::new(&[(1, 3_000), (32, 34_000)]);
        (0..requests).for_each(|nth| {
            scene.arrive(u64::from(nth), Some(20_000 + u64::from(nth)));
        });
        scene
    }

    fn decided(micros: u64, scene: &Scene) -> Result<Proposal, Nanos> {
        match Symphony.decide(Nanos::from_micros(micros), &scene.view()) {
            Decision::Fire(proposal) => Ok(proposal),
            Decision::Wait(until) => Err(until),
        }
    }

    fn ms(time: Nanos) -> f64 {
        time.0 as f64 / 1e6
    }

    #[test]
    fn before_the_window_it_waits_for_it_to_open() {
        let until = decided(0, &scene(4)).unwrap_err();
        assert!((ms(until) - 13.0).abs() < 0.05, "20 - L(5): {until}");
    }

    #[test]
    fn in_the_window_it_takes_all_and_ranks_by_its_end() {
        let proposal = decided(13_100, &scene(4)).unwrap();
        assert_eq!((proposal.take, proposal.skip, proposal.reason), (4, 0, StartReason::LastStart));
        assert!((ms(Nanos(proposal.rank)) - 14.0).abs() < 0.05, "20 - L(4): {}", proposal.rank);
    }

    #[test]
    fn past_the_window_the_batch_shrinks_to_what_the_first_request_allows() {
        let proposal = decided(15_400, &scene(4)).unwrap();
        assert_eq!((proposal.take, proposal.skip), (2, 0));
        assert!((ms(Nanos(proposal.rank)) - 16.0).abs() < 0.05, "20 - L(2): {}", proposal.rank);
    }

    #[test]
    fn the_largest_batch_need_not_wait() {
        let mut full = scene(8);
        full.max_batch = 8;
        assert_eq!(decided(10, &full).unwrap().reason, StartReason::Full);
    }

    #[test]
    fn no_request_waits_forever() {
        assert_eq!(decided(0, Scene::new(&[(1, 3_000)]).crowd(2)).unwrap().take, 2);
        assert_eq!(decided(0, Scene::new(&[]).arrive(0, Some(20_000))).unwrap().take, 1);
    }
}
