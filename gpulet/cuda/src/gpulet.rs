//! An open gpulet: the context of its units.
//!
//! Everything that can still use the stream holds a reference to the gpulet: the handle that was opened, every session,
//! and every [`StreamRef`](crate::StreamRef) that an engine keeps. The context becomes idle when the last one is
//! dropped. So sessions end before the stream and the stream before the context, in whatever order owners drop them.

use std::sync::Arc;

use crate::driver::Stream;
use crate::idle_contexts::UnitContext;
use crate::units::UnitRange;

/// The device of a gpulet, which gets the context back.
pub(crate) trait Owner: Send + Sync {
    /// The driver's number for the device.
    fn ordinal(&self) -> i32;

    /// Called once, when the last reference to gpulet `number` was dropped.
    fn closed(&self, number: u64, context: Arc<UnitContext>);
}

/// A gpulet, shared by its owners.
pub(crate) struct Gpulet {
    number: u64,
    context: Arc<UnitContext>,
    owner: Arc<dyn Owner>,
}

impl Gpulet {
    pub(crate) fn new(owner: Arc<dyn Owner>, number: u64, context: Arc<UnitContext>) -> Arc<Self> {
        Arc::new(Self { number, context, owner })
    }

    pub(crate) fn ordinal(&self) -> i32 {
        self.owner.ordinal()
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.context.stream
    }

    pub(crate) fn units(&self) -> UnitRange {
        self.context.units
    }

    pub(crate) fn idle_priority(&self) -> bool {
        self.context.idle_priority
    }

    pub(crate) fn sms(&self) -> u32 {
        self.context.sms
    }
}

impl Drop for Gpulet {
    fn drop(&mut self) {
        self.owner.closed(self.number, Arc::clone(&self.context));
    }
}
