//! The capability to reject requests at arrival by a wait that was learned.

use crate::Nanos;

/// Fixed-point 1.
const ONE: u64 = 1 << 16;
/// Initial value and lower limit: waits are always longer than the best case. Without it, part of the first queue of
/// every overload would be dropped before anything is learned.
const LEAST: u64 = ONE + ONE / 4;
/// One request dropped after waiting increases the factor by this much.
const LENGTHEN: u64 = ONE / 32;
/// This many answers compensate for one request dropped late. In the steady state about one in this many is dropped
/// late.
const ANSWERS_A_LATE_ONE: u64 = 1_024;
/// Models that share lanes wait for each other's batches too.
const LONGEST: u64 = 64 * ONE;

/// Lets admission learn from admitted requests that were dropped later, and reject similar ones at arrival. `deadline`
/// needs it, because it drops the oldest requests for the sake of the others: a request that would be dropped gets its
/// answer earlier. Ours; no published system here does it.
pub trait ForecastsWait {
    /// Rows of the batches that it aims at. A few such batches may always wait, so that it has requests to choose from.
    fn target_batch(&self) -> f64;
}

/// Factor on the best-case wait, learned from admitted requests that were dropped later. It controls the share of
/// such requests; it is not an estimate of the wait.
///
/// A rejection at arrival is immediate. The same rejection after a wait has used up the time in which another server
/// could have answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitForecast(u64);

impl Default for WaitForecast {
    fn default() -> Self {
        Self(LEAST)
    }
}

impl WaitForecast {
    /// An admitted request was dropped.
    pub(crate) fn dropped(&mut self) {
        self.0 = (self.0 + LENGTHEN).min(LONGEST);
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self) {
        self.0 = self.0.saturating_sub(LENGTHEN / ANSWERS_A_LATE_ONE).max(LEAST);
    }

    /// The wait to expect where `at_best` is the shortest possible, `part` of the way from that to what experience
    /// says, 0 to 1.
    pub(crate) fn of(self, at_best: Nanos, part: f64) -> Nanos {
        let more = (self.0.saturating_sub(ONE) as f64 * part) as u64;
        let longer = u128::from(at_best.0) * u128::from(ONE.saturating_add(more)) / u128::from(ONE);
        Nanos(u64::try_from(longer).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_settles_where_one_in_1024_is_dropped() {
        let mut wait_forecast = WaitForecast::default();
        let wait = Nanos::from_millis(100);
        // Requests that wait three times what was the best: those that expect less are dropped.
        let mut late = 0;
        for _ in 0..102_400 {
            if wait_forecast.of(wait, 1.0) < Nanos::from_millis(300) {
                wait_forecast.dropped();
                late += 1;
            } else {
                wait_forecast.answered();
            }
        }
        assert!((100..=170).contains(&late), "{late} of 102,400");
        for _ in 0..100_000 {
            wait_forecast.answered();
        }
        assert_eq!(wait_forecast, WaitForecast::default(), "answers make it forget");
    }

    #[test]
    fn it_has_an_end() {
        let mut wait_forecast = WaitForecast::default();
        for _ in 0..10_000 {
            wait_forecast.dropped();
        }
        assert_eq!(
            [0.0, 0.5, 1.0].map(|part| wait_forecast.of(Nanos(10), part)),
            [Nanos(10), Nanos(325), Nanos(640)]
        );
        assert_eq!(wait_forecast.of(Nanos::NEVER, 1.0), Nanos::NEVER);
    }
}
