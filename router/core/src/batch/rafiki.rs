use super::{BatchOptions, BatchPolicy, Decision, DropMode, QueueView, Proposal, StartReason};
use crate::{ConfigError, Nanos};

/// Batch sizes, ascending; those beyond the model's largest batch are left out.
const SIZES: [u32; 4] = [16, 32, 48, 64];
/// The objective over the margin that is kept for whatever the estimate misses: 0.1 of it.
const MARGIN: u64 = 10;

/// Rafiki's greedy rule for one model: at once when the largest size is there, else the largest size that is there,
/// as late as the first request's deadline allows with a margin of a tenth of the objective.
///
/// It believes that a batch of the largest size is worth any wait within the objective and that there is one lane
/// that no other model uses: it starts a batch so late that any wait for a lane makes it miss. It is the wrong choice
/// where lanes are shared, where the rate is low (every request is answered at nine tenths of its objective,
/// however idle the lanes), and where sizes between 16, 32, 48 and 64 would pay. The whole rule, its sizes and the
/// margin are (from memory); no released code has it, and Rafiki's choice among several models by reinforcement
/// learning is left out. Measured batch times are replaced by the cost model that all policies here share. A model
/// whose largest batch is below 16 has that one size; requests without a deadline and models whose times are not
/// known yet are not made to wait (ours). Where models share lanes, the oldest request goes first (ours).
/// Requests are dropped when they have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rafiki;

impl BatchPolicy for Rafiki {
    const NAME: &'static str = "rafiki";
    const SUMMARY: &'static str =
        "16, 32, 48 or 64 rows; starts a tenth of the objective before the last moment that meets the deadline";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &[])?;
        Ok(Self)
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let fire = |take, reason| Decision::Fire(Proposal { skip: 0, take, rank: queue.oldest_arrival.0, reason });
        let up_to = |rows: u32| SIZES.iter().rev().copied().find(|&size| size <= rows);
        let largest = up_to(queue.max_batch).unwrap_or(queue.max_batch);
        if queue.rows >= largest {
            return fire(largest, StartReason::Full);
        }
        let take = up_to(queue.rows).unwrap_or(queue.rows);
        let time = queue.time(take);
        if queue.head.deadline == Nanos::NEVER || time == Nanos::ZERO {
            return fire(take, StartReason::LaneFree);
        }
        let start = queue.head.deadline.before(Nanos(queue.slo().0 / MARGIN)).before(time);
        if start <= now { fire(take, StartReason::LastStart) } else { Decision::Wait(start) }
    }

    fn drop_mode(&self) -> DropMode {
        DropMode::Lazy
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    fn taken(ms: u64, scene: &Scene) -> Result<(u32, StartReason), Nanos> {
        match Rafiki.decide(Nanos::from_millis(ms), &scene.view()) {
            Decision::Fire(proposal) => Ok((proposal.take, proposal.reason)),
            Decision::Wait(until) => Err(until),
        }
    }

    /// One row takes 11 ms, 16 take 26, 64 take 74; `requests` requests that arrived at time zero and are due 100 ms later.
    fn waiting(requests: u32) -> Scene {
        let mut scene = Scene::new(&[(1, 11_000), (16, 26_000), (64, 74_000)]);
        scene.max_batch = 100;
        (0..requests).for_each(|_| {
            scene.arrive(0, Some(100_000));
        });
        scene
    }

    #[test]
    fn the_largest_size_goes_at_once() {
        assert_eq!(taken(0, &waiting(64)), Ok((64, StartReason::Full)));
        assert_eq!(taken(0, &waiting(90)), Ok((64, StartReason::Full)));
    }

    #[test]
    fn smaller_ones_wait_for_their_last_start_less_a_margin() {
        let wait = taken(0, &waiting(20)).unwrap_err();
        assert!((63..=64).contains(&(wait.0 / 1_000_000)), "100 - 10 - 26 ms: {wait}");
        assert_eq!(taken(65, &waiting(20)), Ok((16, StartReason::LastStart)));
        assert_eq!(taken(85, &waiting(3)), Ok((3, StartReason::LastStart)));
    }

    #[test]
    fn a_model_of_small_batches_has_one_size() {
        let mut scene = waiting(8);
        scene.max_batch = 8;
        assert_eq!(taken(0, &scene), Ok((8, StartReason::Full)));
    }

    #[test]
    fn no_request_waits_forever() {
        assert_eq!(taken(0, Scene::new(&[(1, 11_000)]).crowd(3)), Ok((3, StartReason::LaneFree)));
        assert_eq!(taken(0, Scene::new(&[]).arrive(0, Some(100_000))), Ok((1, StartReason::LaneFree)));
    }
}
