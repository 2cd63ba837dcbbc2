//! What a lane runs now, so that other threads can end it early.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use models::engine::Interrupt;

/// What a lane runs now, and which batch it is asked to return.
#[derive(Default)]
pub(super) struct Running(Mutex<Current>);

#[derive(Default)]
struct Current {
    token: Option<u64>,
    interrupt: Option<Arc<dyn Interrupt>>,
    interrupted: bool,
    /// Batches that had not begun, or had ended, when they were preempted.
    preempted: BTreeSet<u64>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the batch is to run.
    pub(super) fn begin(&self, token: u64, interrupt: Option<Arc<dyn Interrupt>>) -> bool {
        let mut current = self.lock();
        // Batches begin in the order of their tokens.
        current.preempted = current.preempted.split_off(&token);
        if current.preempted.remove(&token) {
            return false;
        }
        (current.token, current.interrupt) = (Some(token), interrupt);
        true
    }

    /// Whether the batch that ran was interrupted.
    pub(super) fn end(&self) -> bool {
        let mut current = self.lock();
        current.token = None;
        let interrupt = current.interrupt.take();
        let interrupted = std::mem::take(&mut current.interrupted);
        if let Some(interrupt) = interrupt.filter(|_| interrupted) {
            interrupt.clear();
        }
        interrupted
    }

    pub(super) fn preempt(&self, token: u64) {
        let mut current = self.lock();
        if current.token != Some(token) {
            current.preempted.insert(token);
        } else if let Some(interrupt) = &current.interrupt {
            interrupt.interrupt();
            current.interrupted = true;
        }
    }
}
