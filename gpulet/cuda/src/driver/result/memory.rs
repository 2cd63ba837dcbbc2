//! Device memory, pinned memory, copies.

use std::ffi::c_void;

use super::super::sys::{CUdeviceptr, CUstream};
use super::{Answer, Driver};

impl Driver {
    /// `cuMemAlloc` on the current context's device. May wait for all work on it.
    pub(in crate::driver) fn allocate(&self, bytes: usize) -> Answer<CUdeviceptr> {
        let mut address = 0;
        // SAFETY: writes one number there.
        unsafe { call!(self, self.base, cuMemAlloc_v2(&raw mut address, bytes)) }?;
        Ok(address)
    }

    /// `cuMemFree`. May wait for all work on the device.
    ///
    /// # Safety
    /// It was allocated by this call's counterpart, and nothing uses it afterwards.
    pub(in crate::driver) unsafe fn free(&self, address: CUdeviceptr) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuMemFree_v2(address)) }
    }

    /// `cuMemHostAlloc`: pinned memory.
    pub(in crate::driver) fn allocate_pinned(&self, bytes: usize) -> Answer<*mut c_void> {
        let mut place = std::ptr::null_mut();
        // SAFETY: writes one pointer there.
        unsafe { call!(self, self.base, cuMemHostAlloc(&raw mut place, bytes, 0)) }?;
        Ok(place)
    }

    /// `cuMemFreeHost`.
    ///
    /// # Safety
    /// It was allocated by this call's counterpart, and nothing uses it afterwards.
    pub(in crate::driver) unsafe fn free_pinned(&self, place: *mut c_void) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuMemFreeHost(place)) }
    }

    /// `cuMemcpyHtoDAsync`.
    ///
    /// # Safety
    /// All are alive and large enough, and no code writes to either side until the stream has copied it.
    pub(in crate::driver) unsafe fn copy_in(
        &self,
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuMemcpyHtoDAsync_v2(to, from, bytes, stream)) }
    }

    /// `cuMemcpyDtoHAsync`.
    ///
    /// # Safety
    /// All are alive and large enough, and no code uses the host's side until the stream has copied it.
    pub(in crate::driver) unsafe fn copy_out(
        &self,
        to: *mut c_void,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuMemcpyDtoHAsync_v2(to, from, bytes, stream)) }
    }
}
