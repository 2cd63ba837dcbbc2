//! Buffers on the device, and pinned ones on the host that it copies from at full speed.

use std::ffi::c_void;
use std::sync::Arc;

use super::error::DriverError;
use super::primary::Primary;
use super::sys::CUdeviceptr;

/// Bytes on the device, of no defined value at first.
pub struct DeviceBuffer {
    address: CUdeviceptr,
    length: usize,
    primary: Arc<Primary>,
}

impl DeviceBuffer {
    /// Allocates, which may wait for all work on the device: never while it serves. No bytes are an error.
    ///
    /// # Errors
    /// Out of memory, or what else the driver says.
    pub fn allocate(primary: &Arc<Primary>, length: usize) -> Result<Self, DriverError> {
        primary.enter()?;
        let address = primary.driver().allocate(length)?;
        Ok(Self { address, length, primary: Arc::clone(primary) })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: no bytes cannot be allocated.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where it lies on the device. It means nothing once this is dropped.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by us; copies borrow it until they are done. An error at the end is of no use to anybody.
        let _ = self.primary.enter().and_then(|()| unsafe { self.primary.driver().free(self.address) });
    }
}

/// Pinned bytes on the host, zero at first.
pub struct PinnedBuffer {
    place: *mut u8,
    length: usize,
    primary: Arc<Primary>,
}

// SAFETY: it owns its bytes, which are plain memory, and hands them out under Rust's borrowing rules.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates, which may wait for all work on the device: never while it serves. No bytes are an error.
    ///
    /// # Errors
    /// Out of memory, or what else the driver says.
    pub fn allocate(primary: &Arc<Primary>, length: usize) -> Result<Self, DriverError> {
        primary.enter()?;
        let place = primary.driver().allocate_pinned(length)?.cast::<u8>();
        // SAFETY: so many bytes were allocated there, for us alone.
        unsafe { place.write_bytes(0, length) };
        Ok(Self { place, length, primary: Arc::clone(primary) })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: no bytes cannot be allocated.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes lie there, written at least once, and nobody writes while this is borrowed.
        unsafe { std::slice::from_raw_parts(self.place, self.length) }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.place, self.length) }
    }

    pub(super) fn address(&self) -> *const c_void {
        self.place.cast_const().cast()
    }

    pub(super) fn address_mut(&mut self) -> *mut c_void {
        self.place.cast()
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let place = self.place.cast();
        // SAFETY: allocated by us; copies borrow it until they are done. An error at the end is of no use to anybody.
        let _ = self.primary.enter().and_then(|()| unsafe { self.primary.driver().free_pinned(place) });
    }
}
