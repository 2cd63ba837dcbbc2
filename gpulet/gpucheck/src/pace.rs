//! Batches one after the other, measured; and neighbours that keep other units busy meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use models::engine::{Batch, RunError, Session};

use crate::kernel_maker::amount;

/// The largest amount that is tried for a batch: where kernels take no time, none is enough.
const AMOUNT_MAX: u32 = 1 << 24;

/// Runs batches until there are so many times and the moment has come, or `most` of them.
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

/// The amount of work that takes about so long, found by doubling.
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

/// A session that runs again and again beside something else.
pub(crate) struct Neighbour<'a> {
    /// What runs.
    pub(crate) session: &'a mut dyn Session,
    /// On what.
    pub(crate) batch: Batch,
    /// How much of the time it runs, in percent; 100: without a pause.
    pub(crate) duty: u32,
}

/// Times of a neighbour's batches that are kept.
const KEPT_MAX: usize = 10_000;

/// What a neighbour did meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meanwhile {
    /// Batches that it ran.
    pub(crate) batches: u64,
    /// Time in which it ran them.
    pub(crate) busy: Duration,
    /// Times of them, the first one left out: it began before there was anything beside it.
    pub(crate) times: Vec<Duration>,
}

impl Neighbour<'_> {
    fn keep_on(&mut self, started: &AtomicBool, stop: &AtomicBool) -> Result<Meanwhile, RunError> {
        let mut meanwhile = Meanwhile::default();
        // At least once: a neighbour that never ran was none.
        loop {
            let begun = Instant::now();
            self.session.run(&self.batch)?;
            let took = begun.elapsed();
            started.store(true, Ordering::Release);
            if meanwhile.batches > 0 && meanwhile.times.len() < KEPT_MAX {
                meanwhile.times.push(took);
            }
            meanwhile.batches += 1;
            meanwhile.busy += took;
            if stop.load(Ordering::Acquire) {
                return Ok(meanwhile);
            }
            let rest = 100_u32.saturating_sub(self.duty);
            if rest > 0 {
                std::thread::sleep(took * rest / self.duty.max(1));
            }
        }
    }
}

/// Does something while a neighbour runs, which has run once before it begins.
pub(crate) fn beside<T>(
    neighbour: &mut Neighbour<'_>,
    something: impl FnOnce() -> Result<T, RunError>,
) -> Result<(T, Meanwhile), RunError> {
    let (started, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| neighbour.keep_on(&started, &stop));
        while !started.load(Ordering::Acquire) && !running.is_finished() {
            std::thread::yield_now();
        }
        let done = something();
        stop.store(true, Ordering::Release);
        let meanwhile =
            running.join().unwrap_or_else(|_| Err(RunError::Engine("a neighbour panicked".to_owned())))?;
        Ok((done?, meanwhile))
    })
}
