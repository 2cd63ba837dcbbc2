//! Times of parts of a model.

use std::time::Duration;

use models::engine::{Batch, Session};
use rustix::time::{ClockId, clock_gettime};

/// Runs of a part, at least and at most.
const RUNS_MIN: usize = 5;
const RUNS_MAX: usize = 2_000;
/// Multiple of the requested time after which fewer runs than the minimum suffice.
const TIME_FACTOR_MAX: u32 = 20;

/// The shortest of several runs, after one that does not count. Other work on the machine only makes runs longer, so the shortest says
/// most about the part itself.
///
/// # Errors
/// What the engine says.
pub fn shortest(
    session: &mut dyn Session,
    batches: &[Batch],
    (time, clock): (Duration, Clock),
) -> anyhow::Result<Duration> {
    let mut least = Duration::MAX;
    let mut total = Duration::ZERO;
    for (runs, batch) in batches.iter().cycle().take(RUNS_MAX).enumerate() {
        let took = once(session, batch, clock)?;
        total = total.saturating_add(took);
        if runs > 0 {
            least = least.min(took);
        }
        let enough = runs >= RUNS_MIN && total >= time;
        if enough || (runs > 0 && total >= time.saturating_mul(TIME_FACTOR_MAX)) {
            break;
        }
    }
    Ok(least)
}

/// The time of one run.
///
/// # Errors
/// What the engine says.
pub fn once(session: &mut dyn Session, batch: &Batch, clock: Clock) -> anyhow::Result<Duration> {
    let started = clock.now();
    session.run(batch)?;
    Ok(clock.now().saturating_sub(started))
}

/// How runs are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock(ClockId);

impl Clock {
    /// The clock for sessions with this number of cores. A session with one core runs on the thread that calls it, so the time that the
    /// thread was on a core counts, and other work on the machine does not.
    pub fn of(cores: u32) -> Self {
        Self(if cores == 1 { ClockId::ThreadCPUTime } else { ClockId::Monotonic })
    }

    /// Time since a moment that is the same for all calls.
    pub fn now(self) -> Duration {
        let time = clock_gettime(self.0);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

/// The median of times.
pub fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
