//! Measuring consecutive batches, alone and while a co-located session is busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use models::engine::{Batch, RunError, Session};

use crate::kernel_maker::amount;

/// Upper bound on the amount of a batch, for kernels that take no time.
const AMOUNT_MAX: u32 = 1 << 24;

/// Runs at least `least` batches, more until the moment `until`, and at most `most`.
pub(crate) fn times(
    session: &mut dyn Session,
    batch: &Batch,
    (least, most): (usize, usize),
    until: Instant,
) -> Result<Vec<Duration>, RunError> {
    let mut times = Vec::new();
    while times.len() < most && (times.len() < least || Instant::now() < until) {
        let begun = Instant::now();
        session.run(batch)?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// The amount of work that takes about `wanted`, found by doubling.
pub(crate) fn amount_for(session: &mut dyn Session, wanted: Duration) -> Result<u32, RunError> {
    let mut tried = 1_u32;
    session.run(&amount(tried))?;
    loop {
        let begun = Instant::now();
        session.run(&amount(tried))?;
        let took = begun.elapsed();
        if took * 2 >= wanted || tried >= AMOUNT_MAX {
            let factor = (wanted.as_secs_f64() / took.as_secs_f64().max(1e-9)).clamp(1.0, 2.0);
            return Ok((f64::from(tried) * factor) as u32);
        }
        tried = tried.saturating_mul(2);
    }
}

/// A session that runs continuously while something else is measured.
pub(crate) struct CoLocated<'a> {
    /// The session.
    pub(crate) session: &'a mut dyn Session,
    /// Its batch.
    pub(crate) batch: Batch,
    /// Share of the time in which it runs, in percent; 100: without pauses.
    pub(crate) duty: u32,
}

/// Upper bound on recorded times.
const KEPT_MAX: usize = 10_000;

/// What a co-located session did.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoLocatedRuns {
    /// Number of its batches.
    pub(crate) batches: u64,
    /// Time in which they ran.
    pub(crate) busy: Duration,
    /// Their times, without the first one, which started before the measurement.
    pub(crate) times: Vec<Duration>,
}

impl CoLocated<'_> {
    fn keep_running(&mut self, started: &Sender<()>, stop: &AtomicBool) -> Result<CoLocatedRuns, RunError> {
        let mut other_runs = CoLocatedRuns::default();
        // At least one batch, so that there was contention.
        loop {
            let begun = Instant::now();
            self.session.run(&self.batch)?;
            let took = begun.elapsed();
            if other_runs.batches == 0 {
                // The receiver waits for this message, so it cannot be closed.
                let _sent = started.send(());
            } else if other_runs.times.len() < KEPT_MAX {
                other_runs.times.push(took);
            }
            other_runs.batches += 1;
            other_runs.busy += took;
            if stop.load(Ordering::Acquire) {
                return Ok(other_runs);
            }
            let rest = 100_u32.saturating_sub(self.duty);
            if rest > 0 {
                std::thread::sleep(took * rest / self.duty.max(1));
            }
        }
    }
}

/// Calls `something` while the co-located session runs, after its first batch.
pub(crate) fn under_contention<T>(
    co_located: &mut CoLocated<'_>,
    something: impl FnOnce() -> Result<T, RunError>,
) -> Result<(T, CoLocatedRuns), RunError> {
    let stop = AtomicBool::new(false);
    let (sender, started) = channel();
    std::thread::scope(|scope| {
        let stop_flag = &stop;
        let running = scope.spawn(move || co_located.keep_running(&sender, stop_flag));
        // An error: the session failed before, which `join` reports.
        let _failed = started.recv();
        let done = something();
        stop.store(true, Ordering::Release);
        let other_runs = running
            .join()
            .unwrap_or_else(|_| Err(RunError::Engine("a co-located session panicked".to_owned())))?;
        Ok((done?, other_runs))
    })
}
