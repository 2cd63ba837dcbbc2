//! Runs a batch repeatedly: until it is warm, and then often enough.

use std::iter::Cycle;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use models::engine::{Batch, Session};

use super::Halt;
use super::cpu_wait::CpuWait;
use super::runs::{Measured, Run, Runs, Usual, WarmUp};

/// A session and batches of one size with other values, which it runs in turn.
pub struct Repeat<'a> {
    session: &'a mut dyn Session,
    waiting: Option<&'a CpuWait>,
    batches: Cycle<slice::Iter<'a, Batch>>,
    rotation: usize,
    stop: &'a AtomicBool,
}

impl<'a> Repeat<'a> {
    /// `waiting` watches the session's threads; `stop` ends the run.
    pub fn new(
        session: &'a mut dyn Session,
        waiting: Option<&'a CpuWait>,
        batches: &'a [Batch],
        stop: &'a AtomicBool,
    ) -> Self {
        let shapes = |batch: &Batch| -> Vec<_> {
            batch.inputs.iter().map(|input| input.as_ref().map(|tensor| tensor.shape.clone())).collect()
        };
        let first = batches.first().map(shapes);
        let mixed = batches.iter().any(|batch| Some(shapes(batch)) != first);
        let rotation = if mixed { batches.len() } else { 1 };
        Self { session, waiting, batches: batches.iter().cycle(), rotation, stop }
    }

    fn run(&mut self) -> Result<Run, Halt> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Halt::Stopped);
        }
        let waited = || self.waiting.and_then(CpuWait::total).unwrap_or_default();
        let batch = self.batches.next().ok_or(Halt::Stopped)?;
        let before = waited();
        let started = Instant::now();
        let answer = self.session.run(batch);
        let took = started.elapsed();
        answer.map_err(|error| Halt::Failed(error.to_string()))?;
        Ok(Run { took, waited: waited().saturating_sub(before) })
    }

    /// Runs until the batch is warm, or the time for that is over.
    pub fn warm_up(&mut self, time: Duration) -> Result<Usual, Halt> {
        let mut warm_up = WarmUp::new(self.rotation);
        let started = Instant::now();
        loop {
            if let Some(usual) = warm_up.take(self.run()?, started.elapsed(), time) {
                return Ok(usual);
            }
        }
    }

    /// Runs often enough, compared with what is usual. Calls `show` with the progress.
    pub fn measure(
        &mut self,
        usual: Usual,
        time: Duration,
        mut show: impl FnMut(f64),
    ) -> Result<Measured, Halt> {
        let mut runs = Runs::new(usual);
        let started = Instant::now();
        loop {
            runs.take(self.run()?);
            let done = runs.done(started.elapsed(), time);
            show(done);
            if done >= 1.0 {
                break;
            }
        }
        runs.measured().ok_or_else(|| {
            Halt::Failed("every run was disturbed by other processes: measure on an idle machine".to_owned())
        })
    }
}
