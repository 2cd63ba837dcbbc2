//! Streams and events. A stream owns a share of the context that it belongs to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::DriverError;
use super::green::GreenContext;
use super::kernel::Kernel;
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::primary::Primary;
use super::result::is_of_other_context;
use super::sys::{CUdeviceptr, CUevent, CUstream};

enum Home {
    Green(Arc<GreenContext>),
    Primary(Arc<Primary>),
}

/// An order of work on a device.
pub struct Stream {
    raw: CUstream,
    /// Whether events must be recorded through the green context.
    records_by_context: AtomicBool,
    home: Home,
}

// SAFETY: the driver lets any thread use a stream, several at once included; the pointer is never followed by us.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream whose work runs on the SMs of a green context.
    ///
    /// # Errors
    /// What the driver says.
    pub fn on_green(context: &Arc<GreenContext>, priority: i32) -> Result<Self, DriverError> {
        let driver = context.primary().driver();
        // SAFETY: the context is alive, and the stream holds a share of it.
        let raw = context.with(|green| unsafe { driver.create_green_stream(green, priority) })?;
        Ok(Self { raw, records_by_context: AtomicBool::new(false), home: Home::Green(Arc::clone(context)) })
    }

    /// A stream whose work may run on every SM.
    ///
    /// # Errors
    /// What the driver says.
    pub fn on_device(primary: &Arc<Primary>, priority: i32) -> Result<Self, DriverError> {
        primary.enter()?;
        let raw = primary.driver().create_stream(priority)?;
        Ok(Self { raw, records_by_context: AtomicBool::new(false), home: Home::Primary(Arc::clone(primary)) })
    }

    /// The primary context of its device.
    pub fn primary(&self) -> &Arc<Primary> {
        match &self.home {
            Home::Green(context) => context.primary(),
            Home::Primary(primary) => primary,
        }
    }

    /// The stream as libraries take it (`CUstream`, which is `cudaStream_t`). It means nothing once this is dropped.
    pub fn address(&self) -> usize {
        self.raw.addr()
    }

    /// Whether all work on it has ended.
    ///
    /// # Errors
    /// How work on it failed, or that the device is lost.
    pub fn is_idle(&self) -> Result<bool, DriverError> {
        // SAFETY: the stream is alive as long as this exists.
        unsafe { self.primary().driver().stream_is_idle(self.raw) }
    }

    /// Waits until all work on it has ended.
    ///
    /// # Errors
    /// How work on it failed, or that the device is lost.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream is alive as long as this exists.
        unsafe { self.primary().driver().wait_for_stream(self.raw) }
    }

    /// Marks this place in the order; the event comes when the work before it has ended.
    ///
    /// # Errors
    /// What the driver says.
    pub fn record(&self, event: &Event) -> Result<(), DriverError> {
        let driver = self.primary().driver();
        if !self.records_by_context.load(Ordering::Relaxed) {
            // SAFETY: both are alive.
            let recorded = unsafe { driver.record(event.raw, self.raw) };
            match (&recorded, &self.home) {
                (Err(error), Home::Green(_)) if is_of_other_context(error) => {
                    self.records_by_context.store(true, Ordering::Relaxed);
                }
                _ => return recorded,
            }
        }
        match &self.home {
            // SAFETY: both are alive, and `with` keeps other threads off the context.
            Home::Green(context) => context.with(|green| unsafe { driver.record_green(green, event.raw) }),
            // SAFETY: both are alive.
            Home::Primary(_) => unsafe { driver.record(event.raw, self.raw) },
        }
    }

    /// Whether an event of the primary context was refused here, so that events are recorded through the green one.
    pub fn records_by_context(&self) -> bool {
        self.records_by_context.load(Ordering::Relaxed)
    }

    /// Queues a kernel: `blocks` blocks of `threads` threads each.
    ///
    /// # Errors
    /// What the driver says; how the kernel itself fails is told by whatever waits for the stream.
    ///
    /// # Safety
    /// The arguments are those that the kernel takes, and until it has ended the kernel stays loaded and nobody else
    /// uses memory that it writes to.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        blocks: u32,
        threads: u32,
        arguments: &[u64],
    ) -> Result<(), DriverError> {
        self.primary().enter()?;
        // SAFETY: both are alive; the rest is as the caller vouches.
        unsafe { self.primary().driver().launch(kernel.raw(), (blocks, threads), arguments, self.raw) }
    }

    /// Queues a copy to an address of the device.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// As many bytes lie at the address, and nobody touches either side until [`settle`](Self::settle) returned.
    pub unsafe fn queue_copy_in(&self, from: &[u8], to: CUdeviceptr) -> Result<(), DriverError> {
        self.primary().enter()?;
        // SAFETY: as the caller vouches.
        unsafe { self.primary().driver().copy_in(to, from.as_ptr().cast(), from.len(), self.raw) }
    }

    /// Queues a copy from an address of the device.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// As many bytes lie at the address, and nobody touches either side until [`settle`](Self::settle) returned.
    pub unsafe fn queue_copy_out(&self, from: CUdeviceptr, to: &mut [u8]) -> Result<(), DriverError> {
        self.primary().enter()?;
        // SAFETY: as the caller vouches.
        unsafe { self.primary().driver().copy_out(to.as_mut_ptr().cast(), from, to.len(), self.raw) }
    }

    /// Waits until all work on it has ended, on a thread that may not have used the device yet.
    ///
    /// # Errors
    /// How work on it failed, or that the device is lost.
    pub fn settle(&self) -> Result<(), DriverError> {
        self.primary().enter()?;
        self.wait()
    }

    /// Copies as many bytes as both have to the device, and waits until they are there.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy_in(
        &self,
        from: &PinnedBuffer,
        to: &mut DeviceBuffer,
        done: &Event,
    ) -> Result<(), DriverError> {
        let bytes = from.len().min(to.len());
        // SAFETY: both have so many bytes and are borrowed until the copy is waited for below.
        unsafe { self.primary().driver().copy_in(to.address(), from.address(), bytes, self.raw) }?;
        self.finish(done)
    }

    /// Copies as many bytes as both have from the device, and waits until they are there.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy_out(
        &self,
        from: &DeviceBuffer,
        to: &mut PinnedBuffer,
        done: &Event,
    ) -> Result<(), DriverError> {
        let bytes = from.len().min(to.len());
        // SAFETY: both have so many bytes and are borrowed until the copy is waited for below.
        unsafe { self.primary().driver().copy_out(to.address_mut(), from.address(), bytes, self.raw) }?;
        self.finish(done)
    }

    fn finish(&self, done: &Event) -> Result<(), DriverError> {
        match self.record(done).and_then(|()| done.wait()) {
            Ok(()) => Ok(()),
            Err(error) => {
                // The buffers are borrowed no longer than this call: the copy must be over, or the device lost.
                let _ = self.wait();
                Err(error)
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nobody holds the stream any more, its context is dropped after it, and work in flight ends by
        // itself. An error at the end is of no use to anybody.
        let _ = unsafe { self.primary().driver().destroy_stream(self.raw) };
    }
}

/// A mark in the order of a stream.
pub struct Event {
    raw: CUevent,
    primary: Arc<Primary>,
}

// SAFETY: the driver lets any thread use an event; the pointer is never followed by us.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that was not recorded; it counts as come.
    ///
    /// # Errors
    /// What the driver says.
    pub fn create(primary: &Arc<Primary>) -> Result<Self, DriverError> {
        primary.enter()?;
        Ok(Self { raw: primary.driver().create_event()?, primary: Arc::clone(primary) })
    }

    /// Whether the work before it has ended.
    ///
    /// # Errors
    /// How that work failed, or that the device is lost.
    pub fn has_come(&self) -> Result<bool, DriverError> {
        // SAFETY: the event is alive as long as this exists.
        unsafe { self.primary.driver().event_has_come(self.raw) }
    }

    /// Waits until the work before it has ended.
    ///
    /// # Errors
    /// How that work failed, or that the device is lost.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the event is alive as long as this exists.
        unsafe { self.primary.driver().wait_for_event(self.raw) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody holds the event any more. An error at the end is of no use to anybody.
        let _ = unsafe { self.primary.driver().destroy_event(self.raw) };
    }
}
