//! Contexts of gpulets that were closed, kept for the next plan that wants the same units.
//!
//! **\[open\]**, to be read off a GPU: what a context that does nothing costs, and how many there may be. The number
//! kept is bounded, and where the driver refuses another context the oldest kept one is given up for it.

use std::collections::VecDeque;
use std::sync::Arc;

use tracing::warn;

use crate::driver::{DriverError, Stream};
use crate::units::UnitRange;

/// A stream on the SMs of some units, with the context that it owns a share of.
pub(crate) struct UnitContext {
    pub(crate) stream: Stream,
    pub(crate) units: UnitRange,
    pub(crate) sms: u32,
}

/// Contexts at rest, the one that rested longest first, and contexts whose last work still runs.
pub(crate) struct Idle {
    most: usize,
    resting: VecDeque<Arc<UnitContext>>,
    ending: Vec<Arc<UnitContext>>,
}

impl Idle {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, resting: VecDeque::new(), ending: Vec::new() }
    }

    /// A resting context on exactly these units.
    pub(crate) fn take(&mut self, units: UnitRange) -> Option<Arc<UnitContext>> {
        let place = self.resting.iter().position(|context| context.units == units)?;
        self.resting.remove(place)
    }

    /// The context that rested longest.
    pub(crate) fn take_oldest(&mut self) -> Option<Arc<UnitContext>> {
        self.resting.pop_front()
    }

    /// Keeps a context whose work has ended; the ones to be dropped, out of every lock.
    pub(crate) fn keep(&mut self, context: Arc<UnitContext>) -> Vec<Arc<UnitContext>> {
        self.resting.push_back(context);
        let too_many = self.resting.len().saturating_sub(self.most);
        self.resting.drain(..too_many).collect()
    }

    /// Keeps a context with work in flight: to destroy it now would be to destroy it under that work.
    pub(crate) fn let_end(&mut self, context: Arc<UnitContext>) {
        self.ending.push(context);
    }

    /// Looks for work that has ended meanwhile. The contexts to be dropped, out of every lock, and what the driver said
    /// where work failed.
    pub(crate) fn look(&mut self) -> (Vec<Arc<UnitContext>>, Vec<DriverError>) {
        let (mut dropped, mut errors) = (Vec::new(), Vec::new());
        for context in std::mem::take(&mut self.ending) {
            match context.stream.is_idle() {
                Ok(true) => dropped.extend(self.keep(context)),
                Ok(false) => self.ending.push(context),
                Err(error) => {
                    errors.push(error);
                    dropped.push(context);
                }
            }
        }
        (dropped, errors)
    }

    /// Units of the resting contexts, the one that rested longest first.
    pub(crate) fn resting(&self) -> Vec<UnitRange> {
        self.resting.iter().map(|context| context.units).collect()
    }
}

impl Drop for Idle {
    /// Contexts whose work still runs are left to the process: to destroy them is to destroy them under that work, and
    /// to wait for work that hangs is to hang.
    fn drop(&mut self) {
        for context in self.ending.drain(..) {
            if let Ok(false) = context.stream.is_idle() {
                warn!(units = %context.units, "a context is left behind with work in flight");
                std::mem::forget(context);
            }
        }
    }
}
