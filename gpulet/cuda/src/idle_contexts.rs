//! Contexts of closed gpulets, kept for the next plan with the same units.
//!
//! **\[open\]**, to be measured on a GPU: what an idle context costs, and how many there may be. Their number is
//! bounded, and where the driver refuses to create another context the oldest idle one is dropped for it.

use std::collections::VecDeque;
use std::sync::Arc;

use tracing::warn;

use crate::driver::{DriverError, Stream};
use crate::units::UnitRange;

/// A stream on the SMs of some units. It keeps its context alive.
pub(crate) struct UnitContext {
    pub(crate) stream: Stream,
    pub(crate) units: UnitRange,
    pub(crate) sms: u32,
    /// Whether the blocks of its kernels start only where no kernel of an ordinary stream has blocks to start.
    pub(crate) idle_priority: bool,
}

/// Idle contexts, oldest first, and contexts of closed gpulets whose last work still runs.
pub(crate) struct IdleContexts {
    max: usize,
    idle: VecDeque<Arc<UnitContext>>,
    busy: Vec<Arc<UnitContext>>,
}

impl IdleContexts {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, idle: VecDeque::new(), busy: Vec::new() }
    }

    /// Takes an idle context on exactly these units, with a stream of this priority.
    pub(crate) fn take(&mut self, units: UnitRange, idle_priority: bool) -> Option<Arc<UnitContext>> {
        let fits =
            |context: &Arc<UnitContext>| (context.units, context.idle_priority) == (units, idle_priority);
        let place = self.idle.iter().position(fits)?;
        self.idle.remove(place)
    }

    /// Takes the context that has been idle longest.
    pub(crate) fn take_oldest(&mut self) -> Option<Arc<UnitContext>> {
        self.idle.pop_front()
    }

    /// Keeps a context whose work has finished. Returns those beyond the bound, to be dropped outside of every lock.
    pub(crate) fn keep(&mut self, context: Arc<UnitContext>) -> Vec<Arc<UnitContext>> {
        self.idle.push_back(context);
        let too_many = self.idle.len().saturating_sub(self.max);
        self.idle.drain(..too_many).collect()
    }

    /// Keeps a context with work in flight, which must not be destroyed under that work.
    pub(crate) fn keep_busy(&mut self, context: Arc<UnitContext>) {
        self.busy.push(context);
    }

    /// Makes busy contexts idle whose work has finished. Returns the contexts to be dropped outside of every lock, and
    /// the errors of work that failed.
    pub(crate) fn collect_finished(&mut self) -> (Vec<Arc<UnitContext>>, Vec<DriverError>) {
        let (mut dropped, mut errors) = (Vec::new(), Vec::new());
        for context in std::mem::take(&mut self.busy) {
            match context.stream.is_idle() {
                Ok(true) => dropped.extend(self.keep(context)),
                Ok(false) => self.busy.push(context),
                Err(error) => {
                    errors.push(error);
                    dropped.push(context);
                }
            }
        }
        (dropped, errors)
    }

    /// Units of the idle contexts, oldest first.
    pub(crate) fn units(&self) -> Vec<UnitRange> {
        self.idle.iter().map(|context| context.units).collect()
    }
}

impl Drop for IdleContexts {
    /// Leaks contexts with work in flight: destroying them would destroy them under that work, and waiting for work that
    /// hangs would hang.
    fn drop(&mut self) {
        for context in self.busy.drain(..) {
            if let Ok(false) = context.stream.is_idle() {
                warn!(units = %context.units, "a context with work in flight is left to the process");
                std::mem::forget(context);
            }
        }
    }
}
