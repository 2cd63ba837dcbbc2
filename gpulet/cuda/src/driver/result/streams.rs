//! Streams and events.

use super::super::sys::{self, CUevent, CUstream, Code};
use super::{Answer, Driver};

impl Driver {
    /// `cuStreamCreateWithPriority` in the current context.
    pub(in crate::driver) fn create_stream(&self, priority: i32) -> Answer<CUstream> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one pointer there.
        unsafe {
            call!(self, self.base, cuStreamCreateWithPriority(&raw mut stream, sys::NON_BLOCKING, priority))
        }?;
        Ok(stream)
    }

    /// `cuStreamDestroy`. Work in flight still finishes.
    ///
    /// # Safety
    /// The stream is alive, and not used afterwards.
    pub(in crate::driver) unsafe fn destroy_stream(&self, stream: CUstream) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuStreamDestroy_v2(stream)) }
    }

    /// `cuStreamQuery`: whether all work on it has finished.
    ///
    /// # Safety
    /// The stream is alive.
    pub(in crate::driver) unsafe fn stream_is_idle(&self, stream: CUstream) -> Answer<bool> {
        // SAFETY: as the caller ensures.
        self.ready("cuStreamQuery", unsafe { (self.base.cuStreamQuery)(stream) })
    }

    /// `cuStreamSynchronize`: waits for all work on it.
    ///
    /// # Safety
    /// The stream is alive.
    pub(in crate::driver) unsafe fn wait_for_stream(&self, stream: CUstream) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuStreamSynchronize(stream)) }
    }

    /// `cuEventCreate` in the current context, without timing.
    pub(in crate::driver) fn create_event(&self) -> Answer<CUevent> {
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one pointer there.
        unsafe { call!(self, self.base, cuEventCreate(&raw mut event, sys::DISABLE_TIMING)) }?;
        Ok(event)
    }

    /// `cuEventDestroy`.
    ///
    /// # Safety
    /// The event is alive, and not used afterwards.
    pub(in crate::driver) unsafe fn destroy_event(&self, event: CUevent) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuEventDestroy_v2(event)) }
    }

    /// `cuEventRecord`.
    ///
    /// # Safety
    /// Both are alive.
    pub(in crate::driver) unsafe fn record(&self, event: CUevent, stream: CUstream) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuEventRecord(event, stream)) }
    }

    /// `cuEventQuery`: whether the work before it has finished.
    ///
    /// # Safety
    /// The event is alive.
    pub(in crate::driver) unsafe fn event_is_done(&self, event: CUevent) -> Answer<bool> {
        // SAFETY: as the caller ensures.
        self.ready("cuEventQuery", unsafe { (self.base.cuEventQuery)(event) })
    }

    /// `cuEventSynchronize`: waits for the work before it.
    ///
    /// # Safety
    /// The event is alive.
    pub(in crate::driver) unsafe fn wait_for_event(&self, event: CUevent) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuEventSynchronize(event)) }
    }

    fn ready(&self, call: &'static str, code: Code) -> Answer<bool> {
        match code {
            sys::SUCCESS => Ok(true),
            sys::NOT_READY => Ok(false),
            code => Err(self.error(call, code)),
        }
    }
}
