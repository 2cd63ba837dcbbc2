use super::{BatchOptions, BatchPolicy, Decision, PlansAhead, Proposal, QueueView, StartReason, Waiting};
use crate::{ConfigError, Nanos};

/// Batch sizes that have a strategy.
const SIZES: [u32; 5] = [1, 2, 4, 8, 16];
/// Sizes that take longer than this are not used, except for single rows.
const LONGEST: Nanos = Nanos::from_millis(25);
/// A lane is given its next batch this long before it is free.
const SCHEDULE_AHEAD: Nanos = Nanos::from_millis(10);

/// Clockwork's controller: one batch after another on each lane, each planned before the lane is free; the queue
/// whose batch must start first goes first, with the largest of a few sizes that meets the first deadline.
///
/// It believes that execution is predictable to a fraction of a millisecond, so that the start of the next batch is
/// known while the last one runs. It is the wrong choice when times vary, when objectives are not much longer than
/// the 10 ms for which it commits a lane ahead (later arrivals cannot join, and the order is fixed that
/// early), for models that gain from batches above 16, and near capacity: it starts whatever waits, so batches stay
/// small. Sizes, the 10 ms ahead, the longest batch of 25 ms, the order by `deadline - estimate`, dropping what
/// cannot be done after the lane is free, and the choice of the size are (seen) in the released code, with its
/// constants. Changed: the estimate, there the 99th percentile of the last 10 measurements of a size, is the cautious
/// one of the cost model that all policies here share; there is one queue for each model, not one for each size and
/// request, so of the strategies that the queue can fill only the one that must start first ranks it; the
/// allowances for the network, a buffer of 5 ms and a lag of 10 ms, do not apply inside a process, nor do action
/// windows, as a lane here runs what it is given. Loading and unloading models is left out.
///
/// On lanes that it shares with models of other policies, and on lanes with time slices, it schedules when they are
/// free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clockwork;

impl BatchPolicy for Clockwork {
    const NAME: &'static str = "clockwork";
    const SUMMARY: &'static str =
        "plans each lane 10 ms ahead: the batch of 1, 2, 4, 8 or 16 rows that must start first";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &[])?;
        Ok(Self)
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let begins = queue.pool.begins.max(now);
        let (skip, rows_left, head) = first_in_time(begins, queue);
        let Some(head) = head else {
            // Hopeless on this lane only: the queue is evaluated again when the lane is free. Requests that are
            // not dropped then run.
            if begins > now {
                return Decision::Wait(begins);
            }
            let take = queue.head.rows;
            let rank = queue.latest_start(queue.head.deadline, take).0;
            return Decision::Fire(Proposal { skip: 0, take, rank, reason: StartReason::LastStart });
        };
        let limit = rows_left.min(queue.max_batch);
        let usable = |&size: &u32| size == 1 || (size <= limit && queue.time(size) <= LONGEST);
        let sizes = || SIZES.iter().rev().copied().filter(usable);
        let in_time = |size: &u32| begins.after(queue.time(*size)) <= head.deadline;
        let first_to_start = sizes().next().unwrap_or(1);
        let take = sizes().find(in_time).unwrap_or(1).max(head.rows);
        let reason = match take {
            take if take >= limit => StartReason::LaneFree,
            take if take < first_to_start => StartReason::LastStart,
            _ => StartReason::PreferredSize,
        };
        Decision::Fire(Proposal { skip, take, rank: queue.latest_start(head.deadline, first_to_start).0, reason })
    }

    fn planning_ahead(&self) -> Option<&dyn PlansAhead> {
        Some(self)
    }
}

impl PlansAhead for Clockwork {
    fn ahead(&self) -> Nanos {
        SCHEDULE_AHEAD
    }
}

/// Passes over the requests that would be late even alone; how many, the rows after them and the first of those.
fn first_in_time<'a>(begins: Nanos, queue: &'a QueueView<'_>) -> (u32, u32, Option<&'a Waiting>) {
    let (mut skip, mut rows_left) = (0, queue.rows);
    for waiting in queue.iter() {
        if begins.after(queue.time(waiting.rows)) <= waiting.deadline {
            return (skip, rows_left, Some(waiting));
        }
        skip += 1;
        rows_left = rows_left.saturating_sub(waiting.rows);
    }
    (skip, rows_left, None)
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    /// A batch takes 2 ms and 1 ms a row; requests of one row are due at these times.
    fn scene(due_us: &[u64]) -> Scene {
        let mut scene = Scene::new(&[(1, 3_000), (32, 34_000)]);
        for &due in due_us {
            scene.arrive(0, Some(due));
        }
        scene
    }

    fn decided(micros: u64, scene: &Scene) -> Result<Proposal, Nanos> {
        match Clockwork.decide(Nanos::from_micros(micros), &scene.view()) {
            Decision::Fire(proposal) => Ok(proposal),
            Decision::Wait(until) => Err(until),
        }
    }

    #[test]
    fn the_size_is_the_largest_that_waits_and_meets_the_first_deadline() {
        let take = |due, waiting| decided(0, &scene(&vec![due; waiting])).unwrap().take;
        assert_eq!(take(90_000, 7), 4);
        assert_eq!(take(90_000, 8), 8);
        assert_eq!(take(90_000, 60), 16);
        assert_eq!(take(9_000, 60), 4);
    }

    #[test]
    fn sizes_beyond_the_longest_batch_are_not_used() {
        let mut slow = Scene::new(&[(1, 12_000), (4, 24_000), (8, 40_000)]);
        (0..20).for_each(|_| {
            slow.arrive(0, Some(900_000));
        });
        assert_eq!(decided(0, &slow).unwrap().take, 4);
    }

    #[test]
    fn the_rank_is_the_latest_start_of_the_largest_size_that_waits() {
        let proposal = decided(0, &scene(&[20_000; 9])).unwrap();
        assert!(proposal.rank.abs_diff(10_000_000) < 50_000, "20 - L(8): {}", proposal.rank);
    }

    #[test]
    fn requests_that_are_late_when_the_lane_is_free_are_dropped_at_dispatch() {
        let mut ahead = scene(&[4_000, 8_500, 30_000, 30_000]);
        ahead.begins = Nanos::from_micros(6_000);
        let proposal = decided(0, &ahead).unwrap();
        assert_eq!((proposal.skip, proposal.take), (2, 2));
    }

    #[test]
    fn requests_that_only_this_lane_is_too_late_for_are_kept_until_it_is_free() {
        let mut ahead = scene(&[5_000, 6_000]);
        ahead.begins = Nanos::from_micros(8_000);
        assert_eq!(decided(0, &ahead), Err(Nanos::from_micros(8_000)));
        assert_eq!(decided(8_000, &ahead).unwrap().take, 1);
    }

    #[test]
    fn without_a_deadline_it_takes_the_largest_size() {
        let mut scene = Scene::new(&[(1, 3_000), (32, 34_000)]);
        assert_eq!(decided(0, scene.crowd(40)).unwrap().take, 16);
    }
}
