//! Streams and events. A stream keeps its context alive.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::DriverError;
use super::green::GreenContext;
use super::kernel::Kernel;
use super::library::{call, fetch, is_of_other_context};
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::primary::Primary;
use super::sys::{self, CUdeviceptr, CUevent, CUstream};

enum StreamContext {
    Green(Arc<GreenContext>),
    Primary(Arc<Primary>),
}

/// A queue of work on a device.
pub struct Stream {
    raw: CUstream,
    /// Whether events must be recorded through the green context.
    records_by_context: AtomicBool,
    context: StreamContext,
}

// SAFETY: the driver lets any threads use a stream at the same time; we never follow the pointer.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream whose work runs on the SMs of a green context.
    ///
    /// # Errors
    /// The driver failed.
    pub fn on_green(context: &Arc<GreenContext>, priority: i32) -> Result<Self, DriverError> {
        let driver = context.primary().driver();
        let calls = driver.green()?;
        let flags = sys::NON_BLOCKING;
        // SAFETY: the context is alive, and the stream keeps it alive; writes one pointer.
        let raw = context.with(|green| unsafe {
            fetch!(driver, calls, cuGreenCtxStreamCreate(null_mut(), green, flags, priority))
        })?;
        let context = StreamContext::Green(Arc::clone(context));
        Ok(Self { raw, records_by_context: AtomicBool::new(false), context })
    }

    /// A stream whose work may run on every SM.
    ///
    /// # Errors
    /// The driver failed.
    pub fn on_device(primary: &Arc<Primary>, priority: i32) -> Result<Self, DriverError> {
        primary.enter()?;
        let flags = sys::NON_BLOCKING;
        // SAFETY: writes one pointer.
        let raw =
            unsafe { fetch!(primary.driver(), cuStreamCreateWithPriority(null_mut(), flags, priority)) }?;
        let context = StreamContext::Primary(Arc::clone(primary));
        Ok(Self { raw, records_by_context: AtomicBool::new(false), context })
    }

    /// The primary context of its device.
    pub fn primary(&self) -> &Arc<Primary> {
        match &self.context {
            StreamContext::Green(context) => context.primary(),
            StreamContext::Primary(primary) => primary,
        }
    }

    /// The stream as libraries take it (`CUstream`, which is `cudaStream_t`). Meaningless after this is dropped.
    pub fn address(&self) -> usize {
        self.raw.addr()
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Whether all work on it has finished.
    ///
    /// # Errors
    /// Work on it failed, or the device did.
    pub fn is_idle(&self) -> Result<bool, DriverError> {
        let driver = self.primary().driver();
        // SAFETY: the stream is alive while this exists.
        driver.is_finished("cuStreamQuery", unsafe { (driver.base.cuStreamQuery)(self.raw) })
    }

    /// Waits until all work on it has finished.
    ///
    /// # Errors
    /// Work on it failed, or the device did.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream is alive while this exists.
        unsafe { call!(self.primary().driver(), cuStreamSynchronize(self.raw)) }
    }

    /// Records an event, which is done when the work before it has finished.
    ///
    /// # Errors
    /// The driver failed.
    pub fn record(&self, event: &Event) -> Result<(), DriverError> {
        let driver = self.primary().driver();
        if !self.records_by_context.load(Ordering::Relaxed) {
            // SAFETY: both are alive.
            let recorded = unsafe { call!(driver, cuEventRecord(event.raw, self.raw)) };
            match (&recorded, &self.context) {
                (Err(error), StreamContext::Green(_)) if is_of_other_context(error) => {
                    self.records_by_context.store(true, Ordering::Relaxed);
                }
                _ => return recorded,
            }
        }
        match &self.context {
            // SAFETY: both are alive, and `with` excludes other threads.
            StreamContext::Green(context) => {
                let calls = driver.green()?;
                context.with(|green| unsafe { call!(driver, calls, cuGreenCtxRecordEvent(green, event.raw)) })
            }
            // SAFETY: both are alive.
            StreamContext::Primary(_) => unsafe { call!(driver, cuEventRecord(event.raw, self.raw)) },
        }
    }

    /// Whether the driver refused an event of the primary context, so that events are recorded through the green one.
    pub fn records_by_context(&self) -> bool {
        self.records_by_context.load(Ordering::Relaxed)
    }

    /// Queues a kernel: `blocks` blocks of `threads` threads each.
    ///
    /// # Errors
    /// The driver failed. If the kernel itself fails, waiting for the stream reports it.
    ///
    /// # Safety
    /// The arguments match the kernel's parameters. Until the kernel has finished, it stays loaded and no other code uses
    /// memory that it writes to.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        blocks: u32,
        threads: u32,
        arguments: &[u64],
    ) -> Result<(), DriverError> {
        self.primary().enter()?;
        let driver = self.primary().driver();
        let calls = driver.kernels()?;
        let place = |argument: &u64| std::ptr::from_ref(argument).cast_mut().cast::<c_void>();
        let mut places: Vec<*mut c_void> = arguments.iter().map(place).collect();
        let (function, places, none) = (kernel.raw(), places.as_mut_ptr(), null_mut());
        // SAFETY: both are alive, and the driver reads the arguments before it returns; the rest is as the caller ensures.
        unsafe {
            call!(
                driver,
                calls,
                cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, self.raw, places, none)
            )
        }
    }

    /// Queues a copy to an address of the device.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// As many bytes are at the address, and no code accesses either side until [`finish`](Self::finish) returned.
    pub unsafe fn queue_copy_in(&self, from: &[u8], to: CUdeviceptr) -> Result<(), DriverError> {
        self.primary().enter()?;
        let (place, bytes) = (from.as_ptr().cast(), from.len());
        // SAFETY: as the caller ensures.
        unsafe { call!(self.primary().driver(), cuMemcpyHtoDAsync_v2(to, place, bytes, self.raw)) }
    }

    /// Queues a copy from an address of the device.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// As many bytes are at the address, and no code accesses either side until [`finish`](Self::finish) returned.
    pub unsafe fn queue_copy_out(&self, from: CUdeviceptr, to: &mut [u8]) -> Result<(), DriverError> {
        self.primary().enter()?;
        let (place, bytes) = (to.as_mut_ptr().cast(), to.len());
        // SAFETY: as the caller ensures.
        unsafe { call!(self.primary().driver(), cuMemcpyDtoHAsync_v2(place, from, bytes, self.raw)) }
    }

    /// Waits until all work on it has finished, on any thread, even one that has not used the device yet.
    ///
    /// # Errors
    /// Work on it failed, or the device did.
    pub fn finish(&self) -> Result<(), DriverError> {
        self.primary().enter()?;
        self.wait()
    }

    /// Copies as many bytes as both buffers have to the device, and waits for the copy.
    ///
    /// # Errors
    /// The driver failed.
    pub fn copy_in(
        &self,
        from: &PinnedBuffer,
        to: &mut DeviceBuffer,
        done: &Event,
    ) -> Result<(), DriverError> {
        let bytes = from.bytes().get(..to.len()).unwrap_or(from.bytes());
        // SAFETY: both have this many bytes and are borrowed until the copy has finished below.
        unsafe { self.queue_copy_in(bytes, to.address()) }?;
        self.wait_for_copy(done)
    }

    /// Copies as many bytes as both buffers have from the device, and waits for the copy.
    ///
    /// # Errors
    /// The driver failed.
    pub fn copy_out(
        &self,
        from: &DeviceBuffer,
        to: &mut PinnedBuffer,
        done: &Event,
    ) -> Result<(), DriverError> {
        let bytes = from.len().min(to.len());
        let bytes = to.bytes_mut().get_mut(..bytes).unwrap_or_default();
        // SAFETY: both have this many bytes and are borrowed until the copy has finished below.
        unsafe { self.queue_copy_out(from.address(), bytes) }?;
        self.wait_for_copy(done)
    }

    fn wait_for_copy(&self, done: &Event) -> Result<(), DriverError> {
        match self.record(done).and_then(|()| done.wait()) {
            Ok(()) => Ok(()),
            Err(error) => {
                // The buffers are borrowed only during this call: the copy must have finished, or the device failed.
                let _ = self.wait();
                Err(error)
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: no code holds the stream any more, its context is dropped after it, and work in flight still finishes.
        // An error here cannot be handled.
        let _ = unsafe { call!(self.primary().driver(), cuStreamDestroy_v2(self.raw)) };
    }
}

/// A point in the work of a stream.
pub struct Event {
    raw: CUevent,
    primary: Arc<Primary>,
}

// SAFETY: the driver lets any threads use an event; we never follow the pointer.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that was not recorded, which counts as done.
    ///
    /// # Errors
    /// The driver failed.
    pub fn create(primary: &Arc<Primary>) -> Result<Self, DriverError> {
        primary.enter()?;
        // SAFETY: writes one pointer.
        let raw = unsafe { fetch!(primary.driver(), cuEventCreate(null_mut(), sys::DISABLE_TIMING)) }?;
        Ok(Self { raw, primary: Arc::clone(primary) })
    }

    /// Whether the work before it has finished.
    ///
    /// # Errors
    /// That work failed, or the device did.
    pub fn is_done(&self) -> Result<bool, DriverError> {
        let driver = self.primary.driver();
        // SAFETY: the event is alive while this exists.
        driver.is_finished("cuEventQuery", unsafe { (driver.base.cuEventQuery)(self.raw) })
    }

    /// Waits until the work before it has finished.
    ///
    /// # Errors
    /// That work failed, or the device did.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the event is alive while this exists.
        unsafe { call!(self.primary.driver(), cuEventSynchronize(self.raw)) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: no code holds the event any more. An error here cannot be handled.
        let _ = unsafe { call!(self.primary.driver(), cuEventDestroy_v2(self.raw)) };
    }
}
