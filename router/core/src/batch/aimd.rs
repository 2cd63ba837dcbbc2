use super::{BatchOptions, BatchPolicy, Decision, DropMode, Observation, QueueView, Proposal, StartReason};
use crate::{ConfigError, Nanos};

/// Rows that the bound grows by when a batch was in time.
const STEP: u32 = 1;
/// What the bound shrinks to when a batch was not, as a fraction.
const BACK_OFF: (u32, u32) = (9, 10);

/// Clipper's adaptive batching: takes what waits up to a bound that grows by one row whenever a batch was within the
/// objective and shrinks by a tenth whenever one was not; with `max_delay`, waits that long for the bound to be
/// filled (delayed batching).
///
/// It believes that the largest batch within the objective is the best one and that nothing need be known
/// beforehand to find it. It is the wrong choice when objectives are tight: the bound is found by missing it, again
/// and again (one late batch in about ten at a steady load), a batch within the whole objective leaves no time for
/// the wait before it, and deadlines are ignored: requests are dropped when they have expired, and batches are
/// started that end too late. With many models on one lane it measures its own batches and not the wait for
/// those of the others. Step, back-off, `max_delay` and lazy drop (seen in notes on the paper); the released code
/// explores and fits a regression instead. Clipper keeps a bound and a queue for each container; a lane here runs
/// any model, so the bound is the model's, over all its lanes (ours). It never grows beyond the model's largest
/// batch; batches of requests without a deadline count as in time (ours). Where models share lanes, the oldest
/// request goes first (ours).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aimd {
    bound: u32,
    max_delay: Nanos,
}

impl BatchPolicy for Aimd {
    const NAME: &'static str = "aimd";
    const SUMMARY: &'static str =
        "Clipper: the largest batch grows by one row after a batch in time, and shrinks by a tenth after a late one";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &["max_delay"])?;
        Ok(Self { bound: 1, max_delay: options.max_delay.unwrap_or(Nanos::ZERO) })
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let bound = self.bound.min(queue.max_batch);
        let fire = |take, reason| Decision::Fire(Proposal { skip: 0, take, rank: queue.oldest_arrival.0, reason });
        let delay_ends = queue.oldest_arrival.after(self.max_delay);
        if queue.rows >= bound {
            fire(bound, StartReason::Full)
        } else if self.max_delay == Nanos::ZERO {
            fire(queue.rows, StartReason::LaneFree)
        } else if delay_ends <= now {
            fire(queue.rows, StartReason::DelayOver)
        } else {
            Decision::Wait(delay_ends)
        }
    }

    fn observe(&mut self, _now: Nanos, done: &Observation<'_>) {
        let in_time = done.slo.is_none_or(|slo| done.time <= slo);
        self.bound = if in_time {
            self.bound.saturating_add(STEP).min(done.max_batch)
        } else {
            let (kept, of) = BACK_OFF;
            (u64::from(self.bound) * u64::from(kept) / u64::from(of)).try_into().unwrap_or(self.bound)
        }
        .max(1);
    }

    fn drop_mode(&self) -> DropMode {
        DropMode::Lazy
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;
    use crate::CostModel;

    fn aimd(max_delay_ms: Option<u64>) -> Aimd {
        let max_delay = max_delay_ms.map(Nanos::from_millis);
        Aimd::new(&BatchOptions { max_delay, ..BatchOptions::default() }).unwrap()
    }

    fn report(policy: &mut Aimd, ms: u64, slo_ms: Option<u64>) {
        let done = Observation {
            rows: 1,
            row_bytes: 64,
            time: Nanos::from_millis(ms),
            slo: slo_ms.map(Nanos::from_millis),
            rate: 0.0,
            tightest: Nanos::NEVER,
            max_batch: 32,
            cost: &CostModel::default(),
        };
        policy.observe(Nanos::ZERO, &done);
    }

    fn taken(policy: &Aimd, ms: u64, waiting: u32) -> Result<(u32, StartReason), Nanos> {
        match policy.decide(Nanos::from_millis(ms), &Scene::new(&[(1, 10)]).crowd(waiting).view()) {
            Decision::Fire(proposal) => Ok((proposal.take, proposal.reason)),
            Decision::Wait(until) => Err(until),
        }
    }

    #[test]
    fn the_bound_starts_at_one_and_follows_the_objective() {
        let mut policy = aimd(None);
        assert_eq!(taken(&policy, 0, 20), Ok((1, StartReason::Full)));
        (0..10).for_each(|_| report(&mut policy, 20, Some(20)));
        assert_eq!(taken(&policy, 0, 20), Ok((11, StartReason::Full)));
        report(&mut policy, 21, Some(20));
        assert_eq!(taken(&policy, 0, 20), Ok((9, StartReason::Full)));
        assert_eq!(taken(&policy, 0, 3), Ok((3, StartReason::LaneFree)));
    }

    #[test]
    fn the_bound_stays_between_one_row_and_the_largest_batch() {
        let mut policy = aimd(None);
        (0..10).for_each(|_| report(&mut policy, 21, Some(20)));
        assert_eq!(policy.bound, 1);
        (0..100).for_each(|_| report(&mut policy, 21, None));
        assert_eq!(policy.bound, 32);
    }

    #[test]
    fn with_a_delay_it_waits_for_the_bound_to_be_filled() {
        let mut policy = aimd(Some(2));
        (0..3).for_each(|_| report(&mut policy, 1, Some(20)));
        assert_eq!(taken(&policy, 1, 3), Err(Nanos::from_millis(2)));
        assert_eq!(taken(&policy, 1, 4), Ok((4, StartReason::Full)));
        assert_eq!(taken(&policy, 2, 3), Ok((3, StartReason::DelayOver)));
    }
}
