use super::{BatchOptions, BatchPolicy, Decision, QueueView, refuse_max_delay, refuse_preferred};
use crate::{ConfigError, Nanos};

/// The default: never waits, and takes the batch size that gets what is waiting answered soonest on average,
/// by the batch times it has measured, as long as the first request still meets its deadline.
///
/// It believes that measured batch times hold for the next batch. With `n` rows waiting, `m` lanes and batches of
/// `b` taking `L(b)`, the mean completion is about `L(b) (ceil(n / (b m)) + 1) / 2`: at short queues a batch must
/// nearly double the throughput to be worth its members' waiting for each other, at long queues this turns into
/// the highest throughput. So models that do not profit from batches are not batched, with nothing configured.
/// It is the wrong choice where waiting for company pays even with an idle lane (large accelerators near
/// saturation): it never defers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadline;

impl BatchPolicy for Deadline {
    const NAME: &'static str = "deadline";
    const SUMMARY: &'static str = "the batch that answers what waits soonest, by measured batch times, within deadlines";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        refuse_max_delay(Self::NAME, options)?;
        refuse_preferred(Self::NAME, options)?;
        Ok(Self)
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let limit = queue.rows.min(queue.max_batch).max(queue.head_rows);
        // Nothing is known beyond the largest measured size: it is explored by doubling.
        let explored = queue.cost.largest_measured(queue.row_bytes).map_or(1, |rows| rows.saturating_mul(2));
        let limit = limit.min(explored).max(queue.head_rows);
        let mut best = (u128::MAX, queue.head_rows);
        let mut size = queue.head_rows;
        loop {
            match mean_completion(queue, size) {
                Some(mean) if size == queue.head_rows || fits(now, queue, size) => best = best.min((mean, size)),
                Some(_) => break,
                None => return Decision::Fire { take: limit },
            }
            if size >= limit {
                break;
            }
            size = size.saturating_mul(2).min(limit);
        }
        Decision::Fire { take: best.1 }
    }
}

fn fits(now: Nanos, queue: &QueueView<'_>, size: u32) -> bool {
    now.after(queue.cost.cautious(size, queue.row_bytes)) <= queue.head_deadline
}

/// Twice the mean completion time of what waits, in nanoseconds; `None` while costs are unknown.
fn mean_completion(queue: &QueueView<'_>, size: u32) -> Option<u128> {
    // A size never measured is taken to cost no more than the largest that was: tried once, it is known.
    let largest = queue.cost.largest_measured(queue.row_bytes)?;
    let time = queue.cost.hopeful(size.min(largest), queue.row_bytes)?;
    let a_round = u64::from(size) * u64::from(queue.lanes.max(1));
    let rounds = u64::from(queue.rows).div_ceil(a_round.max(1));
    Some(u128::from(time.0) * u128::from(rounds + 1))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{CostModel, ProfilePoint};

    pub(in crate::batch) fn view(cost: &CostModel, rows: u32) -> QueueView<'_> {
        QueueView {
            rows,
            head_rows: 1,
            head_deadline: Nanos::NEVER,
            oldest_arrival: Nanos::ZERO,
            row_bytes: 64,
            max_batch: 32,
            lanes: 1,
            cost,
        }
    }

    fn cost(points: &[(u32, u64)]) -> CostModel {
        let points: Vec<_> = points
            .iter()
            .map(|&(rows, micros)| ProfilePoint { rows, row_bytes: 64, time: Nanos::from_micros(micros) })
            .collect();
        CostModel::from_profile(&points)
    }

    fn taken(cost: &CostModel, rows: u32) -> u32 {
        match Deadline.decide(Nanos::ZERO, &view(cost, rows)) {
            Decision::Fire { take } => take,
            Decision::WaitUntil(_) => panic!("it never waits"),
        }
    }

    #[test]
    fn a_model_that_loses_by_batching_is_not_batched() {
        let magika_like = cost(&[(1, 10_000), (2, 21_000), (4, 46_000), (8, 100_000), (16, 200_000), (32, 400_000)]);
        for waiting in [1, 2, 8, 31, 500] {
            assert_eq!(taken(&magika_like, waiting), 1, "{waiting} waiting");
        }
    }

    #[test]
    fn a_model_that_gains_is_batched_as_far_as_it_gains() {
        let tiny = cost(&[(1, 20), (2, 22), (4, 26), (8, 34), (16, 50), (32, 82)]);
        assert_eq!(taken(&tiny, 1), 1);
        assert_eq!(taken(&tiny, 8), 8);
        assert_eq!(taken(&tiny, 500), 32);
        let flat_then_linear = cost(&[(1, 100), (2, 104), (4, 110), (8, 220), (16, 440), (32, 880)]);
        assert_eq!(taken(&flat_then_linear, 500), 4);
    }

    #[test]
    fn the_first_deadline_bounds_the_batch() {
        let tiny = cost(&[(1, 20), (2, 22), (4, 26), (8, 34), (16, 50), (32, 82)]);
        let queue = QueueView { head_deadline: Nanos::from_micros(40), ..view(&tiny, 32) };
        assert_eq!(Deadline.decide(Nanos::ZERO, &queue), Decision::Fire { take: 4 });
    }

    #[test]
    fn lanes_share_what_waits() {
        let tiny = cost(&[(1, 20), (2, 22), (4, 26), (8, 34), (16, 50), (32, 82)]);
        let queue = QueueView { lanes: 4, ..view(&tiny, 8) };
        assert_eq!(Deadline.decide(Nanos::ZERO, &queue), Decision::Fire { take: 2 });
    }

    #[test]
    fn unknown_sizes_are_explored_by_doubling() {
        assert_eq!(taken(&CostModel::default(), 20), 1);
        assert_eq!(taken(&cost(&[(1, 20)]), 20), 2);
        assert_eq!(taken(&cost(&[(1, 20), (2, 22)]), 20), 4);
    }
}
