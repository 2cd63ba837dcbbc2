//! The primary context of a device, which all libraries of this process share.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::DriverError;
use super::library::{Driver, call, fetch};
use super::sys::{CUcontext, CUdevice};

/// The range of stream priorities of a device; smaller numbers are more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPriorities {
    /// The largest number.
    pub least: i32,
    /// The smallest number.
    pub greatest: i32,
}

impl StreamPriorities {
    /// The priority of a gpulet's stream.
    pub fn of(self, idle_priority: bool) -> i32 {
        if idle_priority { self.least } else { self.greatest }
    }
}

/// A retained primary context. Released when everything created from it is dropped.
pub struct Primary {
    driver: &'static Driver,
    ordinal: i32,
    device: CUdevice,
    context: CUcontext,
    split: AtomicBool,
}

// SAFETY: the driver lets any threads use a context at the same time; we never follow the pointer.
unsafe impl Send for Primary {}
// SAFETY: as above.
unsafe impl Sync for Primary {}

impl Primary {
    /// Retains the context of the device with this ordinal. The driver must be initialised.
    ///
    /// # Errors
    /// The driver failed: no such device, no memory for its context, or another process uses the device exclusively.
    pub fn retain(driver: &'static Driver, ordinal: i32) -> Result<Arc<Self>, DriverError> {
        let device = driver.device(ordinal)?;
        // SAFETY: writes one pointer; `Drop` releases the context once.
        let context = unsafe { fetch!(driver, cuDevicePrimaryCtxRetain(null_mut(), device)) }?;
        let primary = Self { driver, ordinal, device, context, split: AtomicBool::new(false) };
        primary.enter()?;
        Ok(Arc::new(primary))
    }

    /// The driver's number for the device.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Makes the context current for the calling thread, which calls that create something require. No other context is
    /// ever current, so nothing has to be restored.
    pub(super) fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained while this exists.
        unsafe { call!(self.driver, cuCtxSetCurrent(self.context)) }
    }

    /// Free and total bytes of the device. Memory of other processes is not free.
    ///
    /// # Errors
    /// The driver failed.
    pub fn memory(&self) -> Result<(u64, u64), DriverError> {
        self.enter()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: writes two numbers there.
        unsafe { call!(self.driver, cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok((u64::try_from(free).unwrap_or(0), u64::try_from(total).unwrap_or(0)))
    }

    /// The range of stream priorities.
    ///
    /// # Errors
    /// The driver failed.
    pub fn stream_priorities(&self) -> Result<StreamPriorities, DriverError> {
        self.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two numbers there.
        unsafe { call!(self.driver, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
        Ok(StreamPriorities { least, greatest })
    }

    /// Whether this is the first call: a second split of the device would assign the same SMs again.
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
        // SAFETY: we retained it once, and everything created from it kept this alive and is dropped. An error here
        // cannot be handled.
        let _ = unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.device)) };
    }
}
