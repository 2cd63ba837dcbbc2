use super::{BatchOptions, BatchPolicy, Decision, QueueView};
use crate::{ConfigError, Nanos};

/// Waits up to `max_delay` for a preferred size (Triton's dynamic batcher with `max_queue_delay_microseconds` and
/// `preferred_batch_size`; without preferred sizes it waits for the largest batch).
///
/// It believes that a fixed wait buys enough company to pay for itself. It is the wrong choice when the rate
/// changes: at low rates every request pays the delay for nothing, at high rates the wait adds nothing. It
/// looks at no deadline beyond firing early enough for the first request's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    max_delay: Nanos,
    preferred: Vec<u32>,
}

impl BatchPolicy for Window {
    const NAME: &'static str = "window";
    const SUMMARY: &'static str = "wait up to max_delay for a preferred batch size";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        let Some(max_delay) = options.max_delay else {
            return Err(ConfigError::new("max_delay", "missing, policy `window` needs it, for example \"2ms\""));
        };
        let mut preferred = options.preferred.clone();
        preferred.sort_unstable();
        preferred.dedup();
        if preferred.first() == Some(&0) {
            return Err(ConfigError::new("preferred", "contains 0, expected sizes of 1 row or more"));
        }
        Ok(Self { max_delay, preferred })
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let rows = queue.rows.min(queue.max_batch);
        let reached = if self.preferred.is_empty() {
            (rows == queue.max_batch).then_some(rows)
        } else {
            self.preferred.iter().rev().find(|&&size| size <= rows).copied()
        };
        if let Some(take) = reached {
            return Decision::Fire { take };
        }
        let patience_ends = queue.oldest_arrival.after(self.max_delay);
        let last_start = match queue.head_deadline {
            Nanos::NEVER => Nanos::NEVER,
            deadline => deadline.before(queue.cost.cautious(rows, queue.row_bytes)),
        };
        let fire_at = patience_ends.min(last_start);
        if fire_at <= now { Decision::Fire { take: rows } } else { Decision::WaitUntil(fire_at) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::deadline::tests::view;
    use super::*;
    use crate::CostModel;

    fn window(max_delay_ms: u64, preferred: &[u32]) -> Window {
        let max_delay = Some(Nanos::from_millis(max_delay_ms));
        Window::new(&BatchOptions { max_delay, preferred: preferred.to_vec() }).unwrap()
    }

    #[test]
    fn it_waits_for_company_then_goes_with_what_there_is() {
        let (cost, policy) = (CostModel::default(), window(2, &[4, 8]));
        let two = view(&cost, 2);
        assert_eq!(policy.decide(Nanos::ZERO, &two), Decision::WaitUntil(Nanos::from_millis(2)));
        assert_eq!(policy.decide(Nanos::from_millis(2), &two), Decision::Fire { take: 2 });
        assert_eq!(policy.decide(Nanos::ZERO, &view(&cost, 5)), Decision::Fire { take: 4 });
        assert_eq!(policy.decide(Nanos::ZERO, &view(&cost, 100)), Decision::Fire { take: 8 });
    }

    #[test]
    fn a_close_deadline_ends_the_wait() {
        let (cost, policy) = (CostModel::default(), window(10, &[]));
        let queue = QueueView { head_deadline: Nanos::from_millis(3), ..view(&cost, 2) };
        assert_eq!(policy.decide(Nanos::ZERO, &queue), Decision::WaitUntil(Nanos::from_millis(3)));
    }
}
