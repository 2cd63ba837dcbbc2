//! The primary context of a device: what every library in this process shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::DriverError;
use super::result::Driver;
use super::sys::{CUcontext, CUdevice};

/// Priorities that streams of a device may have; smaller numbers are more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPriorities {
    /// The largest number.
    pub least: i32,
    /// The smallest number.
    pub greatest: i32,
}

impl StreamPriorities {
    /// The nearest number that a stream may have.
    pub fn nearest(self, priority: i32) -> i32 {
        priority.clamp(self.greatest.min(self.least), self.least.max(self.greatest))
    }
}

/// A retained primary context. Released when the last thing made from it is dropped.
pub struct Primary {
    driver: &'static Driver,
    ordinal: i32,
    device: CUdevice,
    context: CUcontext,
    split: AtomicBool,
}

// SAFETY: the driver lets any thread use a context, several at once included; the pointer is never followed by us.
unsafe impl Send for Primary {}
// SAFETY: as above.
unsafe impl Sync for Primary {}

impl Primary {
    /// Retains the context of the device with this ordinal. The driver must be initialised.
    ///
    /// # Errors
    /// What the driver says: no such device, no memory for its context, a device that another process has alone.
    pub fn retain(driver: &'static Driver, ordinal: i32) -> Result<Arc<Self>, DriverError> {
        let device = driver.device(ordinal)?;
        let context = driver.retain_primary(device)?;
        let primary = Self { driver, ordinal, device, context, split: AtomicBool::new(false) };
        primary.enter()?;
        Ok(Arc::new(primary))
    }

    /// The driver's number for the device.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Makes the context current for the calling thread. Calls that make things need that; no other context is ever
    /// made current, so that it is not taken back.
    pub(super) fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained as long as this exists.
        unsafe { self.driver.set_current(self.context) }
    }

    /// Free bytes and all bytes of the device, those of other processes counted as taken.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory(&self) -> Result<(u64, u64), DriverError> {
        self.enter()?;
        self.driver.memory()
    }

    /// Priorities that its streams may have.
    ///
    /// # Errors
    /// What the driver says.
    pub fn stream_priorities(&self) -> Result<StreamPriorities, DriverError> {
        self.enter()?;
        let (least, greatest) = self.driver.priority_range()?;
        Ok(StreamPriorities { least, greatest })
    }

    /// Whether this is the first time that somebody asks to split the device; a second split would give the same SMs
    /// again.
    pub(super) fn may_split(&self) -> bool {
        !self.split.swap(true, Ordering::AcqRel)
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: retained once by us, and everything made from it held a share of this and is gone. An error at the
        // end is of no use to anybody.
        let _ = unsafe { self.driver.release_primary(self.device) };
    }
}
